"""The table that several evaluations add to."""

import csv
from concurrent.futures import ThreadPoolExecutor

from models.results.metric_tables import add_row


def test_rows_that_are_added_at_once_are_all_there(tmp_path):
    table = tmp_path / "tables/all.csv"

    def add(number):
        add_row(table, {"experiment": f"a, {number}", "scene": "jug", "model": "neus", "step": number})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    with table.open() as file:
        assert sorted(row["step"] for row in csv.DictReader(file)) == [str(number) for number in range(8)]
    assert [path.name for path in table.parent.iterdir()] == ["all.csv"]
