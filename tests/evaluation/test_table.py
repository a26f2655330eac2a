from fada.evaluation.table import markdown_table


def test_markdown_cells_stay_as_they_are_but_for_pipes() -> None:
    text = markdown_table(["", "CER"], [["`a|b`", 1.5], ["c\\|d", "**2**"]], labels=1)
    assert text == "|  | CER |\n|---|---:|\n| `a\\|b` | 1.5 |\n| c\\|d | **2** |\n"
