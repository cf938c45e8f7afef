"""The table that several evaluations add to."""

import csv
import threading

from models.evaluation.metric_files import add_row


def test_rows_that_are_added_at_once_are_all_there(tmp_path):
    table = tmp_path / "tables/all.csv"
    together = threading.Barrier(8)

    def add(number):
        together.wait()
        add_row(table, {"experiment": f"a, {number}", "scene": "jug", "model": "neus", "step": number})

    runs = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    with table.open() as file:
        assert sorted(row["step"] for row in csv.DictReader(file)) == [str(number) for number in range(8)]
    assert [path.name for path in table.parent.iterdir()] == ["all.csv"]
