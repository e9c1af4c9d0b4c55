#!/usr/bin/env bash
# bare_root.sh ROOT PACKAGE…: creates a Debian root with copies of this machine's essential packages,
# PACKAGE… and all that these depend on, and with nothing else, so that a missing dependency of a
# package that is installed into it is an error. Needs root, but neither a network nor a mirror.
set -euo pipefail
root=${1:?give the folder to create}
shift
unneeded=(usr/share/{doc,info,lintian,locale,man})

# The installed packages that the arguments need, one per line. Of alternatives, the first one that
# is installed.
dependencies() {
  dpkg-query -W -f '${db:Status-Status}\t${Package}\t${Essential}\t${Provides}\t${Pre-Depends}, ${Depends}\n' |
    awk -F '\t' -v wanted="$*" '
      function name_of(text) { sub(/^ +/, "", text); sub(/[ :(].*/, "", text); return text }
      function resolve(name) { return name in needs ? name : provider[name] }
      function add(package) { if (!(package in chosen)) { chosen[package] = 1; queue[++last] = package } }
      $1 == "installed" {
        needs[$2] = $5
        if ($3 == "yes") essential[$2] = 1
        count = split($4, names, ",")
        for (i = 1; i <= count; ++i) provider[name_of(names[i])] = $2
      }
      END {
        for (package in essential) add(package)
        count = split(wanted, names, " ")
        for (i = 1; i <= count; ++i) add(resolve(names[i]))
        for (next_one = 1; next_one <= last; ++next_one) {
          groups = split(needs[queue[next_one]], group, ",")
          for (g = 1; g <= groups; ++g) {
            choices = split(group[g], choice, "|")
            for (c = 1; c <= choices; ++c) {
              name = resolve(name_of(choice[c]))
              if (name != "") { add(name); break }
            }
          }
        }
        for (package in chosen) if (package != "") print package
      }'
}

mapfile -t packages < <(dependencies "$@" | sort)
mkdir -p "$root"/{usr/bin,usr/sbin,usr/lib,usr/lib64,var/lib/dpkg/info,var/lib/dpkg/updates,etc/alternatives}
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done

excluded=()
for folder in "${unneeded[@]}"; do excluded+=(--exclude="$folder/*"); done
dpkg-query -L "${packages[@]}" | sort -u | while read -r file; do
  [[ ! -e $file && ! -L $file ]] || printf '%s\n' "$file"
done | grep -vxE '/\.|/(bin|sbin|lib|lib64)' >"$root/files"
sed -i 's|^/||' "$root/files"
tar -C / -cf - --no-recursion "${excluded[@]}" --files-from="$root/files" | tar -C "$root" -xf - --keep-directory-symlink
rm "$root/files"

# What the packages' scripts would have created.
cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
ln -sf mawk "$root/usr/bin/awk"
ldconfig -r "$root"

# The database of dpkg with these packages.
cp /var/lib/dpkg/info/format "$root/var/lib/dpkg/info/"
for package in "${packages[@]}"; do
  dpkg-query -s "$package" && echo
  for file in "/var/lib/dpkg/info/$package".* "/var/lib/dpkg/info/$package:"*; do
    case $file in *.list | *.md5sums | *.triggers | *.conffiles) [[ ! -e $file ]] || cp "$file" "$root/var/lib/dpkg/info/" ;; esac
  done
done >"$root/var/lib/dpkg/status"
printf '%d packages\n' "${#packages[@]}"
