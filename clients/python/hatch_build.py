"""Adds the programs of quern to the wheel when `make wheel` builds it (deploy/wheel/wheel.py); a wheel without them is pure."""

import os
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Programs(BuildHookInterface):
    """QUERN_WHEEL names a folder: its programs/ become quern/programs, its commands/ scripts of the wheel."""

    def initialize(self, version, build_data):
        """Adds them, and the machine's tag."""
        folder = os.environ.get("QUERN_WHEEL")
        if not folder:
            return
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["force_include"][str(Path(folder) / "programs")] = "quern/programs"
        for command in sorted((Path(folder) / "commands").iterdir()):
            build_data["shared_scripts"][str(command)] = command.name
