"""The same pages in a real browser: colours, keys, growth, and hostile text that stays text."""

import threading
import time

import pytest
from browser import Browser, needs_chromium
from PIL import Image
from shown_run import SCRIPT, batch, run

from hexad.contract.store import Store
from hexad.evidence.ledger import Ledger
from hexad.view.facts import read
from hexad.view.pages import report
from hexad.view.server import Server
from hexad.view.site import Site

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs") / "browsed")


@pytest.fixture(scope="module")
def server(shown):
    with Server(Site([shown])) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser():
    made = Browser()
    yield made
    made.close()


HEAT = "return [...document.querySelectorAll('.t')].map(t => t.style.getPropertyValue('--h'))"


def choose(browser, quantity):
    browser.js(
        f"const s = document.querySelector('.quantity'); s.value = '{quantity}';"
        "s.dispatchEvent(new Event('change'))"
    )
    return [float(v) for v in browser.js(HEAT)]


def test_hostile_text_stays_text(browser, server):
    browser.open(f"{server.url}run/0/0/episode?id=v2-1")
    assert browser.js("return document.title").startswith("v2-1")
    assert browser.js("return document.querySelectorAll('.t')[0].textContent") == SCRIPT
    assert browser.js("return document.querySelectorAll('main img').length") == 0
    assert browser.js("return document.scripts.length") == 2, "ours, and the numbers"


def test_tokens_are_coloured_by_the_chosen_quantity(browser, server):
    browser.open(f"{server.url}run/0/0/episode?id=v2-1")
    mask = [0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert [float(v) for v in browser.js(HEAT)] == mask
    assert choose(browser, "logprob") == mask, "every action has the lowest, -0.5"
    assert choose(browser, "version") == mask
    look = "return getComputedStyle(document.querySelectorAll('.t')[{}]).backgroundColor"
    assert browser.js(look.format(5)) != browser.js(look.format(0)), "the colour is seen"


def test_keys_go_through_tokens_colours_and_episodes(browser, server):
    browser.open(f"{server.url}run/0/0/episode?id=v2-1")
    for _ in range(6):
        browser.keys("\ue014")  # the right arrow
    told = browser.js("return document.querySelector('.token').textContent")
    assert told == "token 5: mask 1, weight 1, logprob -0.5, version 1"
    browser.keys("c")
    chosen = "return document.querySelector('section.episode').dataset.quantity"
    assert browser.js(chosen) == "weight"
    browser.keys("n")
    assert browser.js("return document.title").startswith("v2-2")
    browser.open(f"{server.url}run/0/0/episodes")
    browser.keys("/")
    assert browser.js("return document.activeElement.name") == "text"


def test_a_filter_is_kept_while_paging(browser, server):
    browser.open(f"{server.url}run/0/0/episodes")
    browser.js("document.querySelector('[name=status]').value = 'wrong'")
    browser.js("document.querySelector('.filters').submit()")
    assert browser.js("return document.querySelectorAll('.list tbody tr').length") == 3
    assert browser.js("return document.querySelector('[name=status]').value") == "wrong"


def test_the_overview_follows_a_growing_run(browser, server, shown):
    browser.open(f"{server.url}run/0/0")
    count = "return document.querySelectorAll('.numbers dd')[1].textContent"
    assert browser.js(count) == "3"
    time.sleep(0.5)
    batch(Ledger(shown), Store(shown / "episodes"), 3)
    end = time.monotonic() + 15
    while browser.js(count) != "4" and time.monotonic() < end:
        time.sleep(0.2)
    assert browser.js(count) == "4"


def test_dark_and_print_have_their_own_colours(browser, server):
    browser.open(f"{server.url}run/0/0")
    paper = "return getComputedStyle(document.body).backgroundColor"
    seen = []
    for scheme, media in (("light", "screen"), ("dark", "screen"), ("dark", "print")):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.devtools("Emulation.setEmulatedMedia", media=media, features=features)
        seen.append(browser.js(paper))
    browser.devtools("Emulation.setEmulatedMedia", media="", features=[])
    assert seen[0] == seen[2] == "rgb(255, 255, 255)" and seen[1] != seen[0]


def test_pages_are_drawn(browser, server, tmp_path):
    """Not blank, and of several colours: a style sheet that was not applied would show."""
    for page in ("run/0/0", "run/0/0/diagnosis", "run/0/0/episodes", "run/0/0/episode?id=v2-1"):
        browser.open(f"{server.url}{page}")
        path = tmp_path / "page.png"
        browser.picture(path)
        with Image.open(path) as picture:
            assert picture.width >= 1200 and len(picture.convert("RGB").getcolors(1 << 20)) > 20, (
                page
            )


def test_a_report_works_from_a_file(browser, shown, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(report(shown, read(shown), 2), encoding="utf-8")
    browser.open(f"file://{path}")
    assert browser.js("return document.querySelectorAll('section.episode').length") == 2
    assert choose(browser, "mask")[5] == 1.0, "its own script runs"
    paper = browser.js("return getComputedStyle(document.querySelector('.light')).borderLeftWidth")
    assert paper == "6px", "its own style is used"
