"""A task file: the questionnaire as YAML, and the recipe as a file that explains itself."""

from __future__ import annotations

import io
import textwrap
from pathlib import Path

from ruamel.yaml import YAML

from hexad.advice.advise import Advice
from hexad.advice.questions import Questionnaire
from hexad.contract.durable import disk_errors, write_whole
from hexad.contract.faults import UserError
from hexad.recipe.load import typed
from hexad.recipe.read import Document, read


def answers(path: Path) -> tuple[Questionnaire, Document]:
    """The answers in ``path``, and where each was written.

    Raises ``UserError`` naming file, line and the nearest right name.
    """
    if not path.is_file():
        fix = "give a file of answers, for example examples/advise.yaml; on a terminal without a"
        raise UserError("there is no such task file", where=str(path), fix=f"{fix} file it asks")
    document = read(path)
    found = typed(Questionnaire, document.tree, document)
    require(found, document)
    return found, document


def require(answers: Questionnaire, source: Document) -> None:
    """Counts that can be. Raises ``UserError``."""
    given = answers.feedback.agreement
    if given is None:
        return
    for accepted, judged in (("right_accepted", "right"), ("wrong_accepted", "wrong")):
        if getattr(given, accepted) > getattr(given, judged):
            where = source.where(f"feedback.agreement.{accepted}")
            what = f"feedback.agreement: more were accepted than judged ({accepted} > {judged})"
            raise UserError(what, where=where, fix=f"{accepted} counts among the {judged} episodes")


def yaml_text(tree: object) -> str:
    """``tree`` as YAML 1.2."""
    out = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.dump(tree, out)
    return out.getvalue()


def recipe_text(advice: Advice) -> str:
    """The recipe under a comment that says why, what is not known, and when to change."""
    lines = [f"Advice of `hexad advise` for {advice.name}: a start, not a verdict."]
    for step in advice.path.steps:
        lines += [f"{step.method}: {reason}" for reason in step.reasons[:2]]
    lines += [f"not in this recipe: {reason}" for reason in advice.draft.missing.values()]
    lines += [f"mind: {remark}" for remark in advice.draft.remarks]
    lines += [
        f"later: {step.method}, after: {'; '.join(advice.path.first)}" for step in advice.path.later
    ]
    lines += [f"not measured: {each.what}" for each in advice.missing]
    lines += [f"switch when {t.what} ({t.text}): {t.then}" for t in advice.triggers]
    wrapped = [
        part
        for line in lines
        for part in textwrap.wrap(line, 98, initial_indent="# ", subsequent_indent="#   ")
    ]
    return "\n".join(wrapped) + "\n" + yaml_text(advice.draft.tree)


def write(advice: Advice, path: Path) -> None:
    """Write the recipe to ``path``. Raises ``UserError`` where there is none, or one lies there."""
    if advice.draft.tree is None:
        fix = "see what has to be measured or supplied first"
        what = "there is no recipe to write: " + "; ".join(advice.refusals)
        raise UserError(what, where=str(path), fix=fix)
    if path.exists():
        fix = "name another file: a recipe that somebody may have edited is not overwritten"
        raise UserError("the file exists already", where=str(path), fix=fix)
    with disk_errors("write the recipe", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, recipe_text(advice).encode(), "recipe")
