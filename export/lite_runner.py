"""converter_lite's command line for a Python that has mindspore_lite but no converter_lite (the wheel has none).

Runs in that Python, which may be 3.7: standard library and mindspore_lite only.
"""

from __future__ import annotations

import argparse
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("fmk", "modelFile", "outputFile", "saveType", "optimize", "configFile", "inputShape"):
        parser.add_argument("--" + flag, default="")
    wanted = parser.parse_args()
    import mindspore_lite

    converter = mindspore_lite.Converter()
    converter.optimize = wanted.optimize or "general"
    converter.save_type = getattr(mindspore_lite.ModelType, wanted.saveType or "MINDIR")
    if wanted.inputShape:
        shapes = (entry.rpartition(":") for entry in wanted.inputShape.split(";") if entry)
        converter.input_shape = {name: [int(d) for d in dims.split(",")] for name, _, dims in shapes}
    framework = getattr(mindspore_lite.FmkType, wanted.fmk)
    try:
        converter.convert(framework, wanted.modelFile, wanted.outputFile, config_file=wanted.configFile)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
