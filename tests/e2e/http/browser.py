"""browser.py - headless Chromium with the page at `/`."""

import shutil

import pytest

from service import eventually

selenium = pytest.importorskip("selenium")
from selenium import webdriver  # noqa: E402
from selenium.common.exceptions import StaleElementReferenceException  # noqa: E402
from selenium.webdriver.chrome.options import Options  # noqa: E402
from selenium.webdriver.chrome.service import Service as Driver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

WAIT_S = 60


def start_chromium(folder):
    """Start a driver with a profile in folder; skip the test if Chromium or its driver is missing."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("chromium and chromium-driver are not there")
    options = Options()
    options.binary_location = program
    for a in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1400,1000",
              f"--user-data-dir={folder}", "--no-proxy-server"):
        options.add_argument(a)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder / "downloads")})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    d = webdriver.Chrome(options=options, service=Driver(driver))
    d.set_script_timeout(WAIT_S)
    return d


class Page:
    """The page with an empty storage, showing the service or the chat."""

    def __init__(self, driver, url, view="service"):
        self.d = driver
        self.url = url
        self.log = []
        size(driver, 1400, 1000)
        scheme(driver, "light")
        driver.get_log("browser")
        driver.get(url + "/")
        self.js("localStorage.clear(); sessionStorage.clear()")
        self.reload(view)

    def reload(self, view="service"):
        """Open the view as for the first time in a tab."""
        self.d.get("about:blank")
        self.d.get(f"{self.url}/#/{view}")

    def all(self, css):
        return self.d.find_elements(By.CSS_SELECTOR, css)

    def one(self, css):
        return self.d.find_element(By.CSS_SELECTOR, css)

    def js(self, script, *args):
        return self.d.execute_script(script, *args)

    def text(self, css):
        """Return the text as the page has it, in view or not; rows may come and go meanwhile."""
        return self.js("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent).join('\\n')", css)

    def until(self, condition, what):
        def tried():
            try:
                return condition()
            except StaleElementReferenceException:
                return None
        return eventually(tried, WAIT_S, what)

    def live(self):
        self.until(lambda: self.text("#pill").startswith("live"), "a live page")
        return self

    def click(self, css):
        self.js("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", css)
        self.one(css).click()

    def set(self, **values):
        """Set fields of the settings, as if typed or clicked."""
        for name, value in values.items():
            self.js("""const e = document.getElementById(arguments[0]), v = arguments[1];
                if (typeof v === 'boolean') e.checked = v; else e.value = v;
                e.dispatchEvent(new Event('change', {bubbles: true}))""", name, value)

    def say(self, text):
        self.one("#prompt").send_keys(text + Keys.ENTER)

    def complaints(self):
        """Return the errors of the browser's console, violations of the policy included."""
        self.log += self.d.get_log("browser")
        return [e["message"] for e in self.log if e["level"] == "SEVERE" and "Failed to load resource" not in e["message"]
                and "net::ERR" not in e["message"]]


def size(driver, width, height):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": height, "deviceScaleFactor": 2 if width < 600 else 1, "mobile": width < 600})


def scheme(driver, name):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})
