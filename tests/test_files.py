import json

import pytest

from fada.files import replacing, write_json, write_text


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path):
    path = tmp_path / "result.txt"
    write_text(path, "old")

    def fail_half_way():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_made_and_json_keeps_order_and_scripts(tmp_path):
    path = tmp_path / "deep" / "down" / "x.json"
    write_json(path, {"ω": 1, "a": [1.5]})
    assert path.read_text(encoding="utf-8").startswith('{\n  "ω": 1')
    assert json.loads(path.read_text(encoding="utf-8")) == {"ω": 1, "a": [1.5]}


def test_not_a_number_is_refused_rather_than_written_as_invalid_json(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "x.json", float("nan"))
    assert not (tmp_path / "x.json").exists()
