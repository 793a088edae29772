"""Makes the golden cases of files that a real LibreOffice saved: sheets, documents and slides.

Usage: python make_office_cases.py OUT OLD NEW, as make_cases.py, whose versions it shares, with `soffice` (LibreOffice 7.4) in PATH. Writes
office_cases.json and files with the prefix "office_".

What is saved comes from two sources: flat OpenDocument text written here, as if it had been made in LibreOffice, and workbooks and slides of
openpyxl and python-pptx, as if they had been opened in LibreOffice and saved again. One call of LibreOffice converts all files of a kind.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import make_cases as base
from make_cases import FILES
from office_documents import documents
from office_sheets import sheets
from office_slides import slides

# Seconds that LibreOffice may take for all files of a kind.
LIMIT = 600
# Of the cases that differ in nothing but their files and have the same scores, so many are kept.
KEPT = 2


class Office:
    """Collects sources, then has LibreOffice save all of them."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.sources = {}

    def source(self, name, ending, target):
        """The path at which to write a source, and what a case calls the file that LibreOffice will save from it."""
        path = self.folder / f"office_{name}.{ending}"
        self.sources.setdefault(target, []).append(path)
        return path, {"file": f"files/office_{name}.{target}"}

    def flat(self, name, ending, text, target):
        path, file = self.source(name, ending, target)
        path.write_text(text, encoding="utf-8")
        return file

    def save(self):
        profile = f"-env:UserInstallation=file://{self.folder}/profile"
        for target, paths in self.sources.items():
            command = ["soffice", profile, "--headless", "--convert-to", target, "--outdir", str(FILES)]
            subprocess.run([*command, *map(str, paths)], check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)
            for path in paths:
                made = FILES / f"{path.stem}.{target}"
                assert made.exists(), f"LibreOffice did not make {made.name}"


def spread(cases):
    """A few cases of each outcome, spread over the files; files that none of them uses are removed."""
    groups = {}
    for one in cases:
        rule = one["expected"] if isinstance(one["expected"], dict) and "file" not in one["expected"] else None
        key = json.dumps([one["func"], one["options"], rule, one["arpo_era"], one["verified"]])
        groups.setdefault(key, []).append(one)
    # another start for every group, so that no file is preferred
    starts = {key: at * 7 for at, key in enumerate(groups)}
    kept = {id(group[(starts[key] + at * len(group) // KEPT) % len(group)]) for key, group in groups.items() for at in range(KEPT)}
    chosen = [one for one in cases if id(one) in kept]
    used = json.dumps(chosen)
    for path in FILES.glob("office_*"):
        if f'"files/{path.name}"' not in used:
            path.unlink()
    return chosen


def main():
    FILES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        office = Office(folder)
        for make in [sheets, documents, slides]:
            make(office)
        office.save()
    base.write_scored("office_cases.json", spread)


if __name__ == "__main__":
    main()
