#!/bin/sh
# OSWorld's own Python program and its agent for UI-TARS play tasks on our container desktop, and its evaluators and ours score the same
# ends: any difference fails.
#   tests/osworld/original_runner.sh TASKS FOLDER [ID ...]        # OSWorld's folder of task files, where results go
#   GENERATION=verified tests/osworld/original_runner.sh ...      # with the later OSWorld and its task files
# Needs a Docker engine, the image of `./x image`, target/release/arpo, python3 with venv and pip, and PyPI the first time; ten to twenty
# minutes. The agent is in desktop-env 1.0.2; the environment and the evaluators are those of 0.1.22 for the ARPO era, else of 1.0.2.
set -eu
tasks=${1:?the folder that holds OSWorld\'s examples}
out=${2:?the folder for results}
shift 2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
name=original_runner
. "$here/../functions.sh"
show_logs() { tail -n 20 "$out"/*.log 2>/dev/null || true; }
out=$(folder_at "$out")
GENERATION=${GENERATION:-arpo_era}
case $GENERATION in
    arpo_era) path=$out/desktop-env-0.1.22:$out/desktop-env-1.0.2 ;;
    verified) path=$out/desktop-env-1.0.2 ;;
    *) fail "GENERATION=$GENERATION: expected arpo_era or verified" ;;
esac

# what the two packages import, without what only other agents and providers need: torch among it
packages="numpy<2 pillow~=11.0.0 gymnasium~=0.28.1 requests requests-toolbelt pytz opencv-python-headless<5 pandas<2.3 lxml cssselect
    xmltodict openpyxl python-docx python-pptx pypdf rapidfuzz pyacoustid ImageHash scikit-image librosa pymupdf chardet playwright
    formulas pydrive fastdtw odfpy openai beautifulsoup4 PyYAML mutagen borb PyPDF2 pdfplumber loguru python-dotenv tldextract"
python=$out/python/bin/python
package() { # VERSION, without what it requires
    timeout 600 "$out/python/bin/pip" install --quiet --upgrade --no-deps --target "$out/desktop-env-$1" "desktop-env==$1"
}
if [ ! -e "$out/installed" ]; then
    # shellcheck disable=SC2086 # a list of words
    if ! { python3 -m venv "$out/python" && timeout 1200 "$out/python/bin/pip" install --quiet $packages &&
        package 0.1.22 && package 1.0.2; } >"$out/install.log" 2>&1; then
        skip desktop-env "$out/install.log"
    fi
    touch "$out/installed"
fi
export GENERATION PYTHONPATH="$path"
exec "$python" "$here/original_runner.py" "$tasks" "$out" "$@"
