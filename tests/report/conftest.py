"""Fixtures: a headless Chromium with its console and accessibility checks, and the bundle of a small speller."""

import shutil
import time

import pytest
from node import WEB

AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"


class Browser:
    def __init__(self, driver):
        self.driver = driver

    def open(self, page, *, size=(1200, 900), scheme="light"):
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)  # windows have at least 500 pixels
        # without motion: pointer events could arrive during scrolling
        preferences = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        media = {"features": [{"name": name, "value": value} for name, value in preferences.items()]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.get_log("browser")  # discards the messages of the previous page
        self.driver.get(page.resolve().as_uri())

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, script, timeout=60):
        end = time.monotonic() + timeout
        while not (value := self.run(f"return {script}")):
            assert time.monotonic() < end, f"not within {timeout} s: {script}"
            time.sleep(0.05)
        return value

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def list_console_messages(self):
        return [f"{record['level']}: {record['message']}" for record in self.driver.get_log("browser")]

    def list_accessibility_violations(self):
        """Return the serious and critical violations of accessibility rules, with their elements."""
        self.run(AXE.read_text(encoding="utf-8"))
        result = self.driver.execute_async_script("axe.run(document).then(arguments[arguments.length - 1])")
        return [
            f"{violation['id']}: {node['target']} {node['failureSummary']}"
            for violation in result["violations"]
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]

    def measure_overflow(self):
        """Return the width of the page beyond that of the window in pixels, with all details open."""
        self.run("for (const details of document.querySelectorAll('details')) details.open = true")
        self.run("for (const details of document.querySelectorAll('details')) details.open = true")  # maps add details
        return self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.fixture(scope="session")
def browser():
    program, driver_program = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver_program is None:
        pytest.fail(
            "Tests in a browser need chromium and chromedriver: Debian's chromium and chromium-driver. "
            "`nox -s web` installs them.",
            pytrace=False,
        )
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_program))
    driver.set_script_timeout(60)
    yield Browser(driver)
    driver.quit()


@pytest.fixture(scope="session")
def speller_bundle(tmp_path_factory):
    """The bundle of the speller, with samples."""
    from speller import export_speller

    return export_speller(tmp_path_factory.mktemp("speller") / "bundle")
