"""What starts a federation: scripts, systemd units, and the door to the outside, as text.

Scripts find everything beside themselves, so that a folder may be moved. Units cannot: they name the place
where a folder usually lies, and `install.sh` puts the real one in.
"""

import re

# Where folders lie, unless somebody puts them elsewhere.
PLACE = "/opt/tacit"
# Flower takes a node that is gone for present for a minute: one that comes back sooner is turned away.
BACK_OFF = 75

_HEAD = """\
#!/usr/bin/env bash
# @what@
set -euo pipefail
umask 077
cd "$(dirname "$0")"
if [ -d venv ]; then PATH="$PWD/venv/bin:$PATH"; fi
export PATH OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
"""
_QUIET = """\
# No telemetry, no look for newer versions, nothing installed while running.
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export FLWR_HOME="$PWD/@home@"
"""
_CONNECTION = """\
# Flower wants the full path of the certificate, and the folder may have been moved.
cat > "$FLWR_HOME/config.toml" <<END
[superlink]
default = "tacit"

[superlink.tacit]
address = "127.0.0.1:@inner@"
root-certificates = "$PWD/tls/ca.crt"
END
"""
_GUARD = """\
# Caches of libraries, out of everybody else's way.
export NUMBA_CACHE_DIR="$PWD/state/cache" MPLCONFIGDIR="$PWD/state/cache"
exec tacit site serve .
"""
_NODE = """\
# How often the node looks whether a letter has come for it, in seconds.
export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.2
exec flower-supernode --superlink @host@:@port@ --root-certificates node/ca.crt \\
  --auth-supernode-private-key node/node.key --host 127.0.0.1 --port "${TACIT_NODE_PORT:-@local@}" \\
  --node-config "tacit-door='run/door.sock'"
"""
_SUPERLINK = """\
exec flower-superlink --host 127.0.0.1 --port @inner@ --isolation process \\
  --superexec-auth-secret-file secret/superexec.secret --database "$PWD/state/superlink.db" \\
  --ssl-ca-certfile tls/ca.crt --ssl-certfile tls/server.pem --ssl-keyfile tls/server.key \\
  --enable-supernode-auth
"""
_SUPEREXEC = """\
exec flower-superexec --runtime-api-address 127.0.0.1:@inner@ --root-certificates tls/ca.crt \\
  --superexec-auth-secret-file secret/superexec.secret
"""
_REGISTER = """\
for key in nodes/*.pub; do
  name="$(basename "$key" .pub)"
  if said="$(flwr supernode register "$key" tacit --name "$name" 2>&1)"; then
    number="$(grep -oE '[0-9]{6,}' <<< "$said" | head -n 1)"
    # Flower lists numbers without names.
    echo "$number $name" >> state/nodes.txt
    echo "$name: registered, its node is number $number"
  elif grep -qi "already in use" <<< "$said"; then
    echo "$name: registered before"
  else
    echo "$name: not registered: $said" >&2
    exit 1
  fi
done
"""
_RUN = """\
exec tacit run . "$@"
"""
_NODES = """\
exec flwr supernode list tacit "$@"
"""
_UNREGISTER = """\
exec flwr supernode unregister "$1" tacit
"""


def site_scripts(slug: str, host: str, port: int, local: int) -> dict[str, str]:
    """The scripts of a site, by the names of their files.

    Args:
        slug: The site's name, as it stands in the names of files.
        host: Where the coordinator is reached.
        port: At which port.
        local: The port, on the site's own machine alone, by which the node speaks to its parts.
    """
    guard = "The guard: holds the records, and answers what the coordinator has signed. It needs no network."
    node = "The node: carries messages between the coordinator and the guard. It sees no records."
    return {
        "start-guard.sh": _script(guard, _GUARD),
        "start-node.sh": _script(
            node, _quiet("node/home"), _NODE, host=_in_brackets(host), port=str(port), local=str(local)
        ),
        "install.sh": _install(
            _SITE_OWNERS,
            _SITE_NEXT,
            "Two users, who may read what, and two services.",
            f"{PLACE}/{slug}",
            "tacit-guard tacit-node",
            slug=slug,
        ),
    }


def coordinator_scripts(inner: int) -> dict[str, str]:
    """The scripts of the coordinator, by the names of their files; `inner` is the port of the superlink."""
    quiet, port = _quiet("home"), str(inner)
    told = {
        "start-superlink.sh": ("The superlink: where nodes leave and fetch messages.", (_SUPERLINK,)),
        "start-superexec.sh": ("The superexec: starts the coordinator's side of a run.", (_SUPEREXEC,)),
        "register.sh": ("Makes the nodes known to the superlink, once.", (_CONNECTION, _REGISTER)),
        "nodes.sh": ("Says which nodes are online.", (_CONNECTION, _NODES)),
        "unregister.sh": ("Strikes off a node, by its number.", (_CONNECTION, _UNREGISTER)),
        "run.sh": (
            "Runs the experiment; with --resume, goes on where the last run stopped.",
            (_CONNECTION, _RUN),
        ),
    }
    scripts = {name: _script(what, quiet, *parts, inner=port) for name, (what, parts) in told.items()}
    return {
        **scripts,
        "install.sh": _install(
            _COORDINATOR_OWNERS,
            _COORDINATOR_NEXT,
            "One user, and two services.",
            f"{PLACE}/coordinator",
            "tacit-coordinator",
        ),
    }


def site_units(slug: str) -> dict[str, str]:
    """The two units of a site, by the names of their files."""
    place = f"{PLACE}/{slug}"
    return {
        f"tacit-guard-{slug}.service": fill(_GUARD_UNIT, slug=slug, place=place, common=_COMMON),
        f"tacit-node-{slug}.service": fill(
            _NODE_UNIT, slug=slug, place=place, common=_COMMON, pause=str(BACK_OFF)
        ),
    }


def coordinator_units() -> dict[str, str]:
    """The two units of the coordinator, by the names of their files."""
    place = f"{PLACE}/coordinator"
    parts = {
        "superlink": ("where nodes leave and fetch messages", "network-online.target"),
        "superexec": ("starts the coordinator's side of a run", "tacit-superlink.service"),
    }
    return {
        f"tacit-{name}.service": fill(
            _COORDINATOR_UNIT, name=name, what=what, after=after, place=place, common=_COMMON
        )
        for name, (what, after) in parts.items()
    }


def nginx_config(host: str, port: int, inner: int) -> str:
    """What nginx lets through from outside: what nodes need, and nothing else."""
    return fill(_FRONT, host=host, port=str(port), inner=str(inner), place=f"{PLACE}/coordinator")


def fill(text: str, **values: str) -> str:
    """A text with its blanks filled in: `@name@`."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    left = re.search(r"@[a-z]+@", text)
    assert left is None, f"{left} was not filled in"
    return text


def _script(what: str, *parts: str, **values: str) -> str:
    return fill("".join((_HEAD, *parts)), what=what, **values)


def _install(owners: str, following: str, what: str, usual: str, users: str, **values: str) -> str:
    parts = _PLACED + owners + _PLACED_UNITS + following
    return fill(parts, what=what, usual=usual, users=users, **values)


def _quiet(home: str) -> str:
    return fill(_QUIET, home=home)


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host


_COMMON = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
LockPersonality=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=strict
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native"""

_GUARD_UNIT = """\
[Unit]
Description=Tacit guard of @slug@: holds the records, has no network

[Service]
User=tacit-guard
Group=tacit-guard
WorkingDirectory=@place@
ExecStart=@place@/start-guard.sh
Restart=on-failure
RestartSec=5
# No network at all: the guard is reached through a file, run/door.sock.
PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX
ReadWritePaths=@place@/state @place@/run
InaccessiblePaths=@place@/node
@common@

[Install]
WantedBy=multi-user.target
"""

_NODE_UNIT = """\
[Unit]
Description=Tacit node of @slug@: carries messages, sees no records
Wants=network-online.target
After=network-online.target tacit-guard-@slug@.service
StartLimitIntervalSec=0

[Service]
User=tacit-node
Group=tacit-node
WorkingDirectory=@place@
ExecStart=@place@/start-node.sh
Restart=on-failure
# The coordinator takes a node that has gone for present for a minute, and turns it away if it is back sooner.
RestartSec=@pause@
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
ReadWritePaths=@place@/node/home
# If the records lie elsewhere, add their folder here.
InaccessiblePaths=@place@/data @place@/secret @place@/state
@common@

[Install]
WantedBy=multi-user.target
"""

_COORDINATOR_UNIT = """\
[Unit]
Description=Tacit @name@: @what@
Wants=network-online.target
After=@after@

[Service]
User=tacit-coordinator
Group=tacit-coordinator
WorkingDirectory=@place@
ExecStart=@place@/start-@name@.sh
Restart=on-failure
RestartSec=5
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
ReadWritePaths=@place@
ReadOnlyPaths=@place@/secret @place@/tls @place@/nodes @place@/app
@common@

[Install]
WantedBy=multi-user.target
"""

_PLACED = """\
#!/usr/bin/env bash
# @what@
# Run it as root, where the folder is to stay. It may be run again.
set -euo pipefail
cd "$(dirname "$0")"
if [ "$(id -u)" != 0 ]; then echo "run this as root" >&2; exit 2; fi
case "$PWD/" in
  /home/*|/root/*|/tmp/*|/var/tmp/*|/run/*)
    echo "move this folder first, for instance to @usual@: services cannot see $PWD" >&2; exit 2;;
  *[!A-Za-z0-9/._-]*)
    echo "move this folder first, for instance to @usual@: units cannot hold the name $PWD" >&2; exit 2;;
esac
for user in @users@; do
  if ! id "$user" > /dev/null 2>&1; then
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$user"
  fi
done
"""
_PLACED_UNITS = """\
for unit in units/*.service; do
  sed "s|@usual@|$PWD|g" "$unit" > "${TACIT_UNITS:-/etc/systemd/system}/$(basename "$unit")"
done
systemctl daemon-reload
"""
_SITE_OWNERS = """\
# The folder is root's. Records, secrets and state are the guard's alone; the node sees its own part, and may
# knock at the door in run/.
chown -R root:root .
chmod 755 . ./*.sh
if [ -d venv ]; then chmod -R go+rX venv; fi
chown root:tacit-guard site.toml
chmod 640 site.toml
chown -R tacit-guard:tacit-guard secret state data
chmod -R u=rwX,go= secret state data
chown -R tacit-guard:tacit-node run
chmod 2750 run
chown -R root:tacit-node node
chmod -R u=rwX,g=rX,o= node
chown -R tacit-node:tacit-node node/home
chmod -R u=rwX,go= node/home
# What the noise is drawn from is made here: nobody else has ever seen it.
if [ ! -s secret/entropy.key ]; then
  install -m 600 -o tacit-guard -g tacit-guard /dev/null secret/entropy.key
  head -c 32 /dev/urandom > secret/entropy.key
fi
"""
_SITE_NEXT = """\
echo "Installed. Next: venv/bin/tacit site check ."
echo "then: systemctl enable --now tacit-guard-@slug@ tacit-node-@slug@"
"""
_COORDINATOR_OWNERS = """\
chown -R tacit-coordinator:tacit-coordinator .
chmod -R u=rwX,go= .
"""
_COORDINATOR_NEXT = """\
echo "Installed. Next: systemctl enable --now tacit-superlink tacit-superexec"
echo "then: follow README.md"
"""

_FRONT = """\
# What is let in from outside: what nodes ask for, and nothing else. Whoever reached the rest of the superlink
# could start runs, and so act as the coordinator: it listens on this machine alone, behind this.
server {
    listen @port@ ssl;
    listen [::]:@port@ ssl;
    server_name @host@;
    ssl_certificate @place@/tls/server.pem;
    ssl_certificate_key @place@/tls/server.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    client_max_body_size 2g;

    location /v1/fleet/ {
        # With its own path: what is passed on is what was looked at.
        proxy_pass https://127.0.0.1:@inner@/v1/fleet/;
        proxy_http_version 1.1;
        proxy_ssl_trusted_certificate @place@/tls/ca.crt;
        proxy_ssl_verify on;
        proxy_ssl_name localhost;
        proxy_request_buffering off;
        proxy_read_timeout 300s;
    }
    location / {
        return 403;
    }
}
"""
