"""Overhead over Flower: seconds for one exchange with three nodes, and for a round over it.

The peer is Flower itself: an app of its own that sends every node eight bytes and gets them back, with the
same SuperLink, the same nodes and the same look for replies every tenth of a second. Beside it, in the same
run on the same processes: a greeting through our relay and guard and back, which is the least that we ask,
and 20 rounds of a survival model, 3 sites; and the same rounds in one process. Run it alone:
`make bench-flower`.
"""

import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

from tacit.deploy import folders
from tacit.deploy.coordinator.run import ANYTHING, HERE, charges, default_place, launch, lay_out
from tacit.deploy.processes import LINK, flwr, free_port, start_processes
from tacit.experiments import experiment

ROOT = Path(__file__).parents[1]
CHANGES = ["sites.count=3", "rounds=20", "baselines=false"]
EXCHANGES = 8
# Flower alone: nothing of ours at either end.
PLAIN_CLIENT = """\
from flwr.app import Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def echo(message, context):
    return Message(message.content, reply_to=message)
"""
PLAIN_SERVER = """\
import json
import time

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    taken = []
    for _ in range({exchanges} + 1):
        began = time.perf_counter()
        nodes = list(grid.get_node_ids())
        record = RecordDict({{"tiny": ConfigRecord({{"content": b"12345678"}})}})
        sent = [Message(record, dst_node_id=node, message_type="query") for node in nodes]
        waiting = set(grid.push_messages(sent))
        while waiting:
            time.sleep(0.1)
            waiting -= {{reply.metadata.reply_to_message_id for reply in grid.pull_messages(waiting)}}
        taken.append(time.perf_counter() - began)
    with open("{out}", "w") as file:
        json.dump(taken[1:], file)
"""
OUR_SERVER = """\
import json
import time
from pathlib import Path

import numpy as np

from tacit.deploy.coordinator.run import _recognise
from tacit.deploy.site.config import CoordinatorFile, identity
from tacit.engines.flower.nodes import server_app
from tacit.engines.messages import COORDINATOR, SignedMessage, digest, sign_message

FOLDER = Path("{folder}")


def greetings(meet, settings):
    own, roster = identity(FOLDER), CoordinatorFile.read(FOLDER).roster
    hello = sign_message(SignedMessage(writer=COORDINATOR, reader="", about="hello"), own)
    nodes = meet(hello, lambda answer: _recognise(answer, roster, digest(hello), print))
    nodes.wait_for_sites(list(roster), 120.0)
    taken = []
    for _ in range({exchanges}):
        began = time.perf_counter()
        answers = nodes(dict.fromkeys(roster, hello), 120.0)
        assert all(isinstance(answer, bytes) for answer in answers.values()), answers
        taken.append(time.perf_counter() - began)
    with open("{out}", "w") as file:
        json.dump(taken, file)


app = server_app(greetings)
"""


def timed(coordinator: Path, server: str, client: str | None, out: Path) -> list[float]:
    """The seconds that an app of its own has written down."""
    app = out.with_suffix("")
    shutil.copytree(coordinator / "app", app)
    (app / "tacit_app" / "server.py").write_text(server)
    if client is not None:
        (app / "tacit_app" / "client.py").write_text(client)
    flwr(coordinator, "run", str(app), LINK, until=time.monotonic() + 120)
    while not out.exists():
        time.sleep(0.5)
    time.sleep(2.0)
    return json.loads(out.read_text())


def measured(place: Path) -> dict[str, object]:
    """Everything, on one federation."""
    chosen = experiment.read(ROOT / "examples" / "network.toml", CHANGES)
    federation = chosen.open_federation()
    out = place / "town"
    document, tables = lay_out(chosen, federation, out)
    port = free_port()
    made = folders.write(document, tables, out, host=HERE, port=port, limits=dict.fromkeys(tables, ANYTHING))
    began = time.perf_counter()
    with start_processes(made.coordinator, made.sites, port) as _:
        up = time.perf_counter() - began
        server = PLAIN_SERVER.format(exchanges=EXCHANGES, out=place / "plain.json")
        plain = timed(made.coordinator, server, PLAIN_CLIENT, place / "plain.json")
        server = OUR_SERVER.format(exchanges=EXCHANGES, out=place / "ours.json", folder=made.coordinator)
        ours = timed(made.coordinator, server, None, place / "ours.json")
        began = time.perf_counter()
        run = launch(made.coordinator, default_place(made.coordinator))
        whole = time.perf_counter() - began
    began = time.perf_counter()
    alone = chosen.run_on(federation, place / "alone")
    inside = time.perf_counter() - began
    assert float(np.abs(run.state - alone.state).max()) <= 1e-6
    assert charges(run.path) == charges(alone.path)
    rounds = [entry.seconds for entry in run.record.rounds if entry.seconds is not None]
    return {"up": up, "plain": plain, "ours": ours, "rounds": rounds, "whole": whole, "inside": inside}


def main() -> None:
    """Print the figures, and what of a round is Flower's own."""
    with tempfile.TemporaryDirectory() as place:
        found = measured(Path(place))
    plain, ours, rounds = (statistics.median(found[name]) for name in ("plain", "ours", "rounds"))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; medians of {EXCHANGES} and of 20\n")
    print(f"until everything is up          {found['up']:8.1f} s")
    print(f"exchange, Flower alone          {plain:8.2f} s   (the floor)")
    print(f"exchange, our relay and guard   {ours:8.2f} s   {ours / plain:.2f} x the floor")
    print(f"round of a survival model       {rounds:8.2f} s   {rounds / plain:.2f} x the floor")
    print(f"run of 20 rounds, all in all    {found['whole']:8.1f} s   {found['whole'] / plain:.1f} exchanges")
    print(f"the same in one process         {found['inside']:8.2f} s   weights and charges equal")


if __name__ == "__main__":
    main()
