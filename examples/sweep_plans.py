"""The plans of a job that never ran, as a marimo notebook: `marimo edit examples/sweep_plans.py`.

It needs `pip install 'lumos-df[plots]'`. No trace, no GPU.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App()


@app.cell
def _():
    from lumos_df.estimate import Grid, Search
    from lumos_df.notebook.charts import plans

    return Grid, Search, plans


@app.cell
def _():
    # The job: change these, and everything below follows.
    model, hardware = "llama-3-8b", "h100-sxm"
    gpus, batch = 64, 512
    return batch, gpus, hardware, model


@app.cell
def _(Grid, Search, batch, gpus, hardware, model):
    # Every sensible plan, the fastest 50 that fit into memory: a polars frame, seconds and GB.
    grid = Grid.of_gpus([model], [hardware], gpus, batch)
    found = Search(grid, top=50).run()
    best = found.best
    best.select(
        "tp", "pp", "dp", "micro_batch", "zero", "recompute", "iteration_time_s", "low_s", "high_s", "memory_gb"
    )
    return best, found, grid


@app.cell
def _(found):
    # What was looked at, and why the rest was refused: the first rule that each plan breaks.
    counts = {"configurations": found.configurations, "legal": found.legal, "fit": found.kept}
    refused = {field: (reason.count, reason.example) for field, reason in found.refused.items()}
    counts, refused
    return counts, refused


@app.cell
def _(best):
    # Estimates have ranges. What begins before the range of the fastest ends may be faster: measure those.
    worth_measuring = best.filter(best["low_s"] <= best["high_s"][0])
    worth_measuring.select("tp", "pp", "dp", "micro_batch", "iteration_time_s", "low_s", "high_s")
    return (worth_measuring,)


@app.cell
def _(best, plans):
    # Time against memory, each plan with its range.
    chart = plans(best)
    chart
    return (chart,)


@app.cell
def _(Grid, Search, hardware, model):
    # Plans that no other beats in time, memory and GPUs at once, over several sizes of the job.
    sizes = Grid.make([model], [hardware], ["gpus=32|64|128,tp=1|2|4,pp=1|2,mbs=1|2,batch=512,sp,zero=1"])
    front = Search(sizes, pareto=True).run().best
    front.select("gpus", "tp", "pp", "dp", "micro_batch", "iteration_time_s", "memory_gb")
    return front, sizes


if __name__ == "__main__":
    app.run()
