#!/usr/bin/env bash
# The README's two commands on a fresh Debian or Ubuntu, in a folder made by debootstrap and a clone of the newest commit.
#
#   benchmarks/fresh.sh SUITE FOLDER [root|user] [COMMAND]     e.g. benchmarks/fresh.sh trixie /tmp/fresh user "make demo"
#
# Ubuntu: MIRROR=http://archive.ubuntu.com/ubuntu benchmarks/fresh.sh noble FOLDER
#
# It needs root, debootstrap (apt install debootstrap) and several gigabytes. The Debian mirror, pip's settings and the
# certificates are those of this machine; the packages are those of the README, read from it. FOLDER is kept, so that a
# second call repeats the command only; its log is FOLDER.log. Not a part of `make test`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
suite=${1:?a suite of Debian} folder=${2:?a folder} who=${3:-root} command=${4:-make demo}
[ "$(id -u)" = 0 ] || { echo "error: debootstrap needs root" >&2; exit 2; }
exec > >(tee "$folder.log") 2>&1

mirror=${MIRROR:-$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -1 || true)}
[ -n "$mirror" ] || { echo "error: apt names no Debian mirror here; give one: MIRROR=..." >&2; exit 2; }
if [ ! -e "$folder/etc/debian_version" ]; then
  script=/usr/share/debootstrap/scripts/$suite
  like=sid components=main
  [[ $mirror != *ubuntu* ]] || like=gutsy components=main,universe
  debootstrap --variant=minbase --components=$components "$suite" "$folder" "$mirror" \
    "$([ -e "$script" ] && echo "$script" || echo "${script%/*}/$like")"
fi

mounted() { mountpoint -q "$folder/$1" || mount --rbind "/$1" "$folder/$1"; }
leave() { for name in proc dev; do umount -lR "$folder/$name" 2>/dev/null || true; done; }
trap leave EXIT
mounted proc
mounted dev
cp -L /etc/resolv.conf /etc/hosts "$folder/etc/"
apt-config dump Acquire::Check-Valid-Until > "$folder/etc/apt/apt.conf.d/90fresh" # for a mirror that stands still
pip_settings=$(env | grep -E '^(PIP_|SSL_CERT|REQUESTS_CA|https?_proxy|HTTPS?_PROXY)' || true)
inside() { chroot "$folder" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"; }

packages=$(grep -m1 -oE '^sudo apt install .*' README.md | cut -d' ' -f4-)
inside DEBIAN_FRONTEND=noninteractive apt-get -q update
# shellcheck disable=SC2086
inside DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $packages
# pip's settings and the certificates of this machine, after Debian's.
for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
  [ ! -e "$file" ] || install -D -m 644 "$file" "$folder$file"
done

home=/root
if [ "$who" = user ]; then
  inside id user >/dev/null 2>&1 || inside useradd -m user
  home=/home/user
fi
rm -rf "$folder$home/clone"
git clone -q --no-hardlinks . "$folder$home/clone"
[ "$who" = root ] || chroot "$folder" chown -R user:user "$home/clone"
begin=$(date +%s)
# shellcheck disable=SC2086
inside HOME=$home $pip_settings setpriv --reuid "$(chroot "$folder" id -u "$who")" --regid "$(chroot "$folder" id -g "$who")" \
  --clear-groups bash -c "cd $home/clone && $command"
inside bash -c "cd $home/clone && .venv/bin/python --version && .venv/bin/python -m pip list 2>/dev/null | grep -iE '^(numpy|opencv|scipy) '; g++ --version | head -1"
echo "$suite, $who: '$command' took $(($(date +%s) - begin)) s"
