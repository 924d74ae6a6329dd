"""The README's examples run and print what their comments say."""

import re
import subprocess
import sys

import pytest

from tests.sources import ROOT

README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_the_two_commands_come_first():
    first = README.split("```")[1]
    assert "make demo" in first and "make test" in first


def test_there_is_an_example():
    assert EXAMPLES != []


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_print_what_they_say(code):
    expected = re.findall(r"^print\(.*\)\s+# (.*)$", code, flags=re.MULTILINE)
    assert expected != [], "an example shows what it prints"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_links_lead_to_files(target):
    assert target.startswith("https://") or (ROOT / target).is_file()
