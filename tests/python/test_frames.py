"""pandas, pyarrow, zarr, dask and xarray read and write `tidemill://`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tidemill

if TYPE_CHECKING:
    from python.conftest import Nodes


@pytest.fixture(params=["inside", "nodes"])
def where(request: pytest.FixtureRequest, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """The storage options of a pool: an embedded pool is passed, a pool of nodes is the default."""
    if request.param == "nodes":
        monkeypatch.setenv("TIDEMILL_POOL", str(nodes.file))
        yield {}
        with tidemill.connect() as pool:
            for entry in pool.folder():
                pool.delete_tree(entry.name)
    else:
        with tidemill.start("256MiB") as pool:
            yield {"pool": pool}


def frame():  # noqa: ANN201 - pandas is imported where it is needed
    """A data frame."""
    import pandas as pd

    return pd.DataFrame({"number": np.arange(200_000), "half": np.arange(200_000) / 2, "name": [f"row {row % 100}" for row in range(200_000)]})


def test_pandas(where: dict[str, object]) -> None:
    import pandas as pd

    rows = frame()
    rows.to_parquet("tidemill://pandas/rows.parquet", storage_options=where)
    pd.testing.assert_frame_equal(pd.read_parquet("tidemill://pandas/rows.parquet", storage_options=where), rows)
    rows.head(100).to_csv("tidemill://pandas/rows.csv.gz", index=False, storage_options=where)
    pd.testing.assert_frame_equal(pd.read_csv("tidemill://pandas/rows.csv.gz", storage_options=where), rows.head(100))
    with pytest.raises(FileNotFoundError):
        pd.read_parquet("tidemill://pandas/none.parquet", storage_options=where)


def test_pyarrow_datasets(where: dict[str, object]) -> None:
    import fsspec
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    fs = PyFileSystem(FSSpecHandler(fsspec.filesystem("tidemill", **where)))
    table = pa.table({"number": np.arange(100_000), "kind": np.arange(100_000) % 3})
    ds.write_dataset(table, "arrow/rows", format="parquet", partitioning=ds.partitioning(pa.schema([("kind", pa.int64())]), flavor="hive"), filesystem=fs)
    rows = ds.dataset("arrow/rows", partitioning="hive", filesystem=fs)
    assert len(rows.files) == 3
    assert rows.count_rows() == 100_000
    some = rows.to_table(filter=(ds.field("kind") == 1) & (ds.field("number") < 30)).sort_by("number")
    assert some["number"].to_pylist() == list(range(1, 30, 3))


def test_zarr(where: dict[str, object]) -> None:
    import zarr

    data = np.random.default_rng(1).normal(size=(300, 400))
    group = zarr.open_group("tidemill://zarr/group", mode="w", storage_options=where)
    array = group.create_array("data", shape=data.shape, chunks=(64, 64), dtype=data.dtype)
    array[:] = data
    again = zarr.open_group("tidemill://zarr/group", mode="r", storage_options=where)
    assert list(again) == ["data"]
    assert (again["data"][:] == data).all()
    assert (again["data"][100:103, ::7] == data[100:103, ::7]).all()
    del group["data"]
    assert list(group) == []


def test_dask_dataframes(where: dict[str, object]) -> None:
    import dask.dataframe as dd
    import pandas as pd

    rows = frame()
    dd.from_pandas(rows, npartitions=4).to_parquet("tidemill://dask/rows", storage_options=where)
    again = dd.read_parquet("tidemill://dask/rows", storage_options=where)
    assert again.npartitions == 4
    assert int(again["number"].sum().compute(scheduler="threads")) == int(rows["number"].sum())
    pd.testing.assert_frame_equal(again.compute(scheduler="sync"), rows, check_dtype=False)


def test_xarray(where: dict[str, object]) -> None:
    import xarray as xr

    data = xr.Dataset({"heat": (("time", "x"), np.arange(600.0).reshape(20, 30))}, coords={"time": np.arange(20), "x": np.linspace(0, 1, 30)})
    data.to_zarr("tidemill://xarray/heat.zarr", storage_options=where, consolidated=False)
    again = xr.open_zarr("tidemill://xarray/heat.zarr", storage_options=where, consolidated=False)
    xr.testing.assert_identical(again.load(), data)
    assert float(again.heat.sel(time=3).sum()) == float(data.heat.sel(time=3).sum())
