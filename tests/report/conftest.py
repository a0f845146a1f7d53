"""A headless Chromium, with what it complains of and a person's keys."""

import shutil
import time

import pytest
from node import WEB

AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"


class Browser:
    def __init__(self, driver):
        self.driver = driver

    def open(self, page, *, size=(1200, 900), scheme="light"):
        self.driver.set_window_size(*size)
        # without motion, or a pointer would meet the page while it still scrolls
        preferences = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        media = {"features": [{"name": name, "value": value} for name, value in preferences.items()]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.get_log("browser")  # of the page before
        self.driver.get(page.resolve().as_uri())

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, script, timeout=60):
        end = time.monotonic() + timeout
        while not (found := self.run(f"return {script}")):
            assert time.monotonic() < end, f"not within {timeout} s: {script}"
            time.sleep(0.05)
        return found

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def complaints(self):
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def violations(self):
        """Return what axe finds that keeps people out: serious and critical ones, each with where it is."""
        self.run(AXE.read_text(encoding="utf-8"))
        found = self.driver.execute_async_script("axe.run(document).then(arguments[arguments.length - 1])")
        return [
            f"{each['id']}: {node['target']} {node['failureSummary']}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    def keys(self, *names):
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        ActionChains(self.driver).send_keys(*(getattr(Keys, name) for name in names)).perform()


@pytest.fixture(scope="session")
def browser():
    program, driver_program = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver_program is None:
        pytest.fail(
            "Tests in a browser need chromium and chromedriver: Debian's chromium and chromium-driver. "
            "`nox -s web` brings them.",
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
