"""deploy/kubernetes/autoscaling.yaml has the same numbers as the service's own rule."""

import math
import re

from service import ROOT


def number(name):
    """Return the value of a constant of engine_config.h, which may be a default of option_table.h."""
    value = re.search(rf"{name} = (\w+)", (ROOT / "controller/fleet/engine_config.h").read_text())[1]
    if not value.isdigit():
        value = re.search(rf"#define {value} +(\d+)$", (ROOT / "base/option_table.h").read_text(), re.M)[1]
    return int(value)


def test_keda_applies_the_rule_of_the_service():
    text = (ROOT / "deploy/kubernetes/autoscaling.yaml").read_text()
    assert f'threshold: "{math.isqrt(number("AUTOSCALE_TARGET"))}"' in text
    assert math.isqrt(number("AUTOSCALE_TARGET")) ** 2 == number("AUTOSCALE_TARGET")
    assert f"pollingInterval: {number('AUTOSCALE_PERIOD_S')}\n" in text
    down = text[text.index("scaleDown:"):]
    assert f"stabilizationWindowSeconds: {number('AUTOSCALE_DOWN_S')}\n" in down
    up = text[text.index("scaleUp:"):text.index("scaleDown:")]
    assert "stabilizationWindowSeconds: 0\n" in up
    assert text.count(f"[{number('AUTOSCALE_WINDOW_S')}s])") == 2


def test_prometheus_reads_the_port_that_needs_no_key():
    text = (ROOT / "deploy/kubernetes/controller.yaml").read_text()
    (port,) = re.findall(r"--metrics-http=0\.0\.0\.0:(\d+)\n", text)
    assert f'prometheus.io/port: "{port}"\n' in text
    assert f"{{name: metrics, containerPort: {port}}}" in text
    # of the Service whose endpoints include a controller without workers
    (bus,) = [part for part in text.split("---\n") if "publishNotReadyAddresses: true" in part]
    assert f"{{name: metrics, port: {port}, targetPort: metrics}}" in bus
    assert "{port: metrics," in (ROOT / "deploy/kubernetes/service-monitor.yaml").read_text()
    assert "{port: metrics}" in (ROOT / "deploy/kubernetes/network-policy.yaml").read_text()
