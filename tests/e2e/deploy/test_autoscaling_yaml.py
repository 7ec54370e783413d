"""deploy/kubernetes/autoscaling.yaml has the numbers of the service's own rule."""

import math
import re

from service import ROOT


def number(name):
    return int(re.search(rf"{name} = (\d+)", (ROOT / "controller/fleet/engine_config.h").read_text())[1])


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
