"""What is written to people: the administrator of a site, the coordinator, and who hands out the folders."""

from importlib.metadata import version

from tacit.deploy.units import PLACE, fill


def site_readme(name: str, slug: str, host: str, port: int, local: int, extras: str, until: str) -> str:
    """For the administrator and the data-protection officer of a site."""
    values = {"host": host, "port": str(port), "local": str(local), "extras": extras, "until": until}
    values["wheel"] = wheel()
    return fill(_SITE, name=name, slug=slug, place=f"{PLACE}/{slug}", **values)


def coordinator_readme(host: str, port: int, inner: int, extras: str, until: str, front: bool) -> str:
    """For whoever runs the coordinator."""
    values = {"host": host, "port": str(port), "inner": str(inner), "extras": extras, "until": until}
    values["wheel"] = wheel()
    door = _DOOR if front else _NO_DOOR
    return fill(_COORDINATOR, door=fill(door, **values), place=f"{PLACE}/coordinator", **values)


def distribution_readme(folders: dict[str, str]) -> str:
    """For whoever has made the folders."""
    listed = "\n".join(
        f"- `sites/{slug}` goes to {name}, and to nobody else." for name, slug in folders.items()
    )
    return fill(_HANDING_OUT, listed=listed, wheel=wheel())


def wheel() -> str:
    """The file that holds this version of the program."""
    return f"tacit-{version('tacit')}-py3-none-any.whl"


_HANDING_OUT = """\
# Who gets what

- `coordinator` goes to the machine of the coordinator.
@listed@
- `authority` goes to no machine. It holds the key that vouches for the coordinator's certificate, and is
  needed only to renew that certificate. Keep it offline, for instance on a stick in a safe.

Put the program in each folder, the same for all: `pip wheel --no-deps --wheel-dir FOLDER SOURCE`, with the
place of Tacit's source for SOURCE, writes `@wheel@`.

Every folder holds secret keys. Carry each one by a way that nobody else can read, and delete this copy when
all of them have arrived. Each folder has a README that says what to do there.

The keys of the sites were made here. A site that does not want anybody else to have ever held its keys
makes its own: its README says how.
"""

_SITE = """\
# The site @name@

This folder makes this machine the site "@name@" of a federation: it helps to train a model, and its records
stay where they are. Two programs run here, as two different users:

- The **guard** holds the records. It has no network. It answers only questions that the coordinator has
  signed and that `site.toml` allows, and it writes down what each experiment costs before anything leaves.
- The **node** carries messages between the guard and the coordinator, @host@. It cannot read the records,
  the guard's keys or its books. If it runs code that the coordinator has sent, that code can do no more
  than the node.

## What to do, in this order

You need Linux with systemd and Python 3.11 or newer. Everything is done as root, in this folder.

1. **Put this folder** at `@place@`. It holds secret keys: nobody else should be able to read it on the way.
2. **Install the program**, the same version as the coordinator's, from the file that came with this folder:

       python3 -m venv venv
       venv/bin/pip install "./@wheel@[@extras@]"

   The programs install nothing by themselves later.
3. **Say where the records are, and what you allow**, in `site.toml`. `[data]` says where the records are
   and what you call their columns; `[limits]` says what an experiment may cost at most; `[agreed]` says by
   which rules the records are read: look at them, for by these and no others they are. Nothing that the
   coordinator sends can change any of this. Then make sure whom you believe: ask the coordinator, by
   telephone, for its public key; it must be the `coordinator` in `site.toml`.
4. **Install the services**: `./install.sh`. It makes the users `tacit-guard` and `tacit-node`, gives each
   what it may read, and starts nothing. If the records lie outside `data/`, make sure yourself that
   `tacit-guard` can read them and `tacit-node` cannot.
5. **Ask whether all is well**: `venv/bin/tacit site check .` says it in plain words. With the file of an
   experiment, `venv/bin/tacit site check . --experiment experiment.toml`, it also says what that experiment
   would release, what it would cost, and whether your limits let it in.
6. **Open the firewall**: outgoing TCP from this machine to @host@, port @port@. Nothing else: no incoming
   connection, and none at all for the guard. If a proxy opens encrypted traffic to inspect it, exempt this
   connection: the node believes the certificate in `node/ca.crt` and no other. (On this machine alone, the
   node speaks to its own parts at 127.0.0.1, port @local@.)
7. **Start**: `systemctl enable --now tacit-guard-@slug@ tacit-node-@slug@`.

After a change of `site.toml`: `systemctl restart tacit-guard-@slug@`.

## What is happening

- The log: `journalctl -u tacit-guard-@slug@ -u tacit-node-@slug@ -f`. The guard says what it has agreed to,
  what it has answered, and what it has refused and why.
- What has been released, and what it has cost: `venv/bin/tacit ledger state/ledger.db --verify`.
- After a crash the services start again by themselves: the guard after 5 seconds, the node after 75,
  because the coordinator turns away a node that is back within a minute.

Keep `state/`. It is the memory of what has been spent: without it, what was spent would be spent a second
time. Never put back an older copy of it.

## How to stop, and how to withdraw

- To stop: `systemctl stop tacit-node-@slug@ tacit-guard-@slug@`. Nothing leaves from then on. The run goes
  on with the other sites if what it promises allows that, and stops otherwise.
- To withdraw for good: `systemctl disable --now tacit-node-@slug@ tacit-guard-@slug@`, close the firewall,
  and tell the coordinator, who strikes this site off. Delete `secret/`, `node/` and the copy of the records
  in `data/`; keep `state/` as the proof of what was released. What was released before cannot be called
  back: that is what the noise in it is for.

## What leaves, and what never does

What leaves: answers to the questions of an experiment that `site.toml` allows.
`tacit site check . --experiment experiment.toml` lists them. As long as `epsilon` in `[limits]` is a number
and `trusted` is `false`, every answer that depends on records has noise in it before anybody else sees it:
added here, or added in shares by all sites to a sum of which nobody sees the parts. Besides, others learn
the name of this site, that it takes part, when it answers, how long its messages are, and that and why it
refuses an experiment, but for reasons that lie in the records: those are in the guard's log alone.

With `epsilon = inf` in `[limits]`, answers without noise are let out, too. That is for rehearsals, on
records that are public or made up.

What never leaves: the records themselves, the names of your columns and files, the keys in `secret/`, and
the ledger.

## Keys and dates

The keys of this folder were made by whoever made the folder, except `secret/entropy.key`, from which noise
is drawn: it is made on this machine, by `install.sh` or when the guard first starts. If nobody else may
ever have held the others, make new ones before step 4:

    venv/bin/tacit site renew .

and send the coordinator the line that it prints and the file `node/node.key.pub`. Neither is secret. For
experiments with `noise = "secure"` send the line to the other sites as well, by a way that does not lead
through the coordinator: it belongs in `[colleagues]` of their `site.toml`.

The coordinator's certificate is valid until @until@. The coordinator renews it; nothing has to be done
here.
"""

_COORDINATOR = """\
# The coordinator

This folder makes this machine the coordinator of a federation. Sites reach it at @host@, port @port@. It
holds no site's records. It sends signed questions, and sees what sites let out.

## What to do, in this order

You need Linux with systemd and Python 3.11 or newer. Everything is done as root, in this folder.

1. **Put this folder** at `@place@`. It holds secret keys: nobody else should be able to read it on the way.
2. **Install the program**, the same version as the sites', from the file that came with this folder:

       python3 -m venv venv
       venv/bin/pip install "./@wheel@[@extras@]"

3. **Install the services**: `./install.sh`, then `systemctl enable --now tacit-superlink tacit-superexec`.
4. @door@
5. **Make the nodes known**: `sudo -u tacit-coordinator ./register.sh`. It may be run again.
6. **Wait for the sites**: `sudo -u tacit-coordinator ./nodes.sh` says who is online. A site that asks whom
   it talks to is told the public key of this coordinator, by telephone: it is `key` in `coordinator.toml`.
7. **Run**: `sudo -u tacit-coordinator ./run.sh`. It shows round after round; whoever stops watching does
   not stop the run. What comes of it is in `runs/`. After a crash:
   `sudo -u tacit-coordinator ./run.sh --resume`. No site pays twice for the same answer.

## What is happening

- The log of a run: `runs/NAME/log.txt`, who has agreed, refused and answered, and why not.
- The log of the programs: `journalctl -u tacit-superlink -u tacit-superexec -f`.
- What a run promises and costs, before any site is asked: `venv/bin/tacit plan experiment.toml`.
- To stop everything: `systemctl stop tacit-superexec tacit-superlink`.

## Sites that come, go or change their keys

- A site withdraws: the number of its node is in `state/nodes.txt`;
  `sudo -u tacit-coordinator ./unregister.sh NUMBER`. Delete its file in `nodes/`, and take its name out of
  `[sites]` in `experiment.toml`.
- A site has made its own keys: put the line that it sends in `[sites]` of `coordinator.toml`, and its
  `node.key.pub` in `nodes/` in the place of the old one; unregister its old node as above, and do step 5
  again.

## Keys and dates

`secret/identity.key` signs what sites answer to. Whoever has it can spend what the sites' limits allow, so
keep other people off this machine: whoever can reach port @inner@ on it, or can read this folder, can act
as the coordinator.

The certificate is valid until @until@. Before that day, bring the folder `authority` here, then

    venv/bin/python -c 'from tacit.deploy.folders import renew_certificate as renew; renew(".", "AUTHORITY")'
    systemctl restart tacit-superlink tacit-superexec

with the place of that folder for AUTHORITY, restart nginx if it runs, and take `authority` away again.
Nothing has to be done at the sites.
"""

_DOOR = """\
**Open the door**: install nginx, copy `nginx.conf` to `/etc/nginx/conf.d/tacit.conf` (put in the real
   place of this folder if it is not `/opt/tacit/coordinator`), and `systemctl reload nginx`. It lets in
   what nodes ask for, and nothing else. That is needed: Flower proves who a node is, not who a user is, so
   whoever reached the superlink itself could start runs. The superlink listens on this machine alone, at
   port @inner@. Then open incoming TCP, port @port@, in the firewall, best for the addresses of the sites
   alone."""

_NO_DOOR = """\
**Nothing to open**: sites are on this machine, and the superlink listens at @host@ alone. For sites on
   other machines make folders with the name under which they reach this one."""
