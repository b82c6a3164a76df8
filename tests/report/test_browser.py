"""The page in a real browser: Debian's chromium, from the file, at desktop and phone width, light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


def browser_paths() -> tuple[str, str]:
    """The browser and its driver; a test of a page needs both."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.fail("chromium and chromedriver are needed to open the report: apt-get install chromium chromium-driver")
    return browser, driver


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver

    program, driver = browser_paths()
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield opened
    opened.quit()


def show(browser: Any, folder: Path, width: int, scheme: str = "light") -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    browser.get((folder / "report.html").as_uri())


def order(browser: Any) -> list[str]:
    return [each.text for each in browser.find_elements("css selector", "table.claims tbody th a")]


def test_a_claim_is_followed_from_the_table_to_its_section(browser: Any, folder: Path) -> None:
    show(browser, folder, 1280)
    browser.find_element("link text", "flash-high").click()
    assert browser.current_url.endswith("#claim-flash-high")
    section = browser.find_element("id", "claim-flash-high")
    top = browser.execute_script("return arguments[0].getBoundingClientRect().top", section)
    assert 0 <= top < 900
    assert section.find_element("css selector", "h3").text == "Flash gives 2 to 4 times."


def test_the_table_is_sorted_by_a_column(browser: Any, folder: Path) -> None:
    show(browser, folder, 1280)
    assert order(browser) == ["amp-speed", "flash-low", "flash-high", "never-run"], "before: the order of the file"
    head = browser.find_element("xpath", "//table[contains(@class,'claims')]//th[.//button[text()='Claim']]")
    head.find_element("css selector", "button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert order(browser) == ["amp-speed", "flash-high", "flash-low", "never-run"]
    measured = browser.find_element("xpath", "//table[contains(@class,'claims')]//button[text()='Measured']")
    measured.click()
    measured.click()
    assert order(browser)[0] == "amp-speed", "1.75x is the largest"
    assert order(browser)[-1] == "never-run", "no figure sorts last, whichever way"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_page(browser: Any, folder: Path, width: int, scheme: str) -> None:
    show(browser, folder, width, scheme)
    browser.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    assert browser.execute_script(OVERFLOW) == 0


@pytest.mark.parametrize("width", [360, 390, 1280])
def test_no_figure_is_cut_off_at_the_right(browser: Any, folder: Path, width: int) -> None:
    show(browser, folder, width)
    browser.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    cut = browser.execute_script("""
        const plots = [...document.querySelectorAll('figure .plot')];
        return [plots.length, plots.filter(each => each.scrollWidth > each.clientWidth).map(each => each.ariaLabel)]""")
    assert cut[0] > 5
    assert cut[1] == []


def test_dark_follows_the_system_and_figures_follow_the_page(browser: Any, folder: Path) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        show(browser, folder, 1280, scheme)
        paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        label = browser.execute_script("return getComputedStyle(document.querySelector('figure svg text')).fill")
        colours[scheme] = (brightness(paper), brightness(label))
    paper, label = colours["light"]
    assert paper - label > 100
    paper, label = colours["dark"]
    assert label - paper > 100


def test_the_console_is_silent(browser: Any, folder: Path) -> None:
    show(browser, folder, 1280)
    assert browser.get_log("browser") == []


def test_labels_of_figures_do_not_overlap(browser: Any, folder: Path) -> None:
    show(browser, folder, 1280)
    overlaps = browser.execute_script("""
        const found = [];
        for (const svg of document.querySelectorAll('figure svg')) {
            const texts = [...svg.querySelectorAll('text')];
            const boxes = texts.map(text => [text.textContent, text.getBoundingClientRect()]);
            boxes.forEach(([first, a], i) => boxes.slice(i + 1).forEach(([second, b]) => {
                const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                if (a.width && wide > 3 && high > 3) found.push(`${svg.ariaLabel}: ${first} / ${second}`);
            }));
        }
        return found""")
    assert overlaps == []


def brightness(colour: str) -> float:
    """Mean of red, green and blue of `rgb(1, 2, 3)`."""
    numbers = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(numbers) / 3
