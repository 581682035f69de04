"""Real CANN headers: the probing and the lint are tested everywhere, the compilation where headers are."""

import os

import pytest

from hybrid_ops import cann_headers, check_cann


def test_missing_tree_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setenv("ASCEND_HOME_PATH", "/nonexistent/cann")
    assert check_cann.main() == 77
    said = capsys.readouterr().out
    assert "nothing was checked" in said
    assert "ASCEND_HOME_PATH: no CANN tree: got /nonexistent/cann; install the CANN toolkit" in said


def test_incomplete_tree_names_the_missing_header(monkeypatch, tmp_path):
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    with pytest.raises(cann_headers.HeadersMissing, match=r"stub_fun\.h: CPU-debug headers not found"):
        cann_headers.find()
    stub = tmp_path / "tools/tikicpulib/lib/include/stub_fun.h"
    stub.parent.mkdir(parents=True)
    stub.touch()
    with pytest.raises(cann_headers.HeadersMissing, match=r"kernel_operator\.h: not found"):
        cann_headers.find()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("std::vector<int> v;", "std container"),
        ("double x = 1;", "double in device code"),
        ("void F(half* p, int n);", "pointer parameter without __gm__"),
    ],
)
def test_lint_sees_what_cpu_mode_cannot(tmp_path, line, says):
    source = tmp_path / "op.cpp"
    source.write_text("// double std::vector in a comment is fine\n" + line + "\n")
    assert f"line 2: {says}" in check_cann._lint(source)


def test_lint_accepts_gm_pointers(tmp_path):
    source = tmp_path / "op.cpp"
    source.write_text("void F(__gm__ half* p, float x);\n")
    assert check_cann._lint(source) == ""


@pytest.mark.skipif(
    not os.environ.get("ASCEND_HOME_PATH"), reason="ASCEND_HOME_PATH unset: no real CANN headers here"
)
def test_every_source_compiles_against_real_headers():
    findings = check_cann.run()
    assert findings
    assert [f for f in findings if f.text] == []
