"""An environment that forks: its state is what was said."""

import json

from hexad.contract.digest import digest
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.messages import Message, Role
from hexad.contract.reward import Owner, OwnerKind, Reward
from hexad.environments.protocol import Step
from toyworld import ToyEnvironment


class Walker(ToyEnvironment):
    """An ``a`` pays .25 in its turn; a ``.`` ends the walk, which the verifier then pays 1."""

    said = ""
    lie = ""

    async def step(self, turn):
        number, self.said = len(self.said), self.said + turn.content
        if turn.content == ".":
            return Step(ending=Ending.of(EndingKind.TERMINAL))
        paid = (Reward("hop", 0.25, Owner(OwnerKind.TURN, number)),) * (turn.content == "a")
        return Step((Message(Role.TOOL, "ok"),), rewards=paid, tool_calls=1, tool_seconds=0.5)

    def state_digest(self):
        return digest([self.said + self.lie])

    def snapshot(self):
        return json.dumps(self.said).encode()

    def fork(self, snapshot):
        made = type(self)(self.family)
        made.said = json.loads(snapshot)
        return made
