# Runs an interpreter in a root of its own: a tmpfs that only this mount namespace has, with
# everything of the old root but the interpreter and the CUDA libraries, which are copies in
# /app. To be started by `unshare --mount`.
#
#     container.sh ROOT PYTHON LIBPYTHON|none STUB ARGUMENT...
set -e
root=$1 python=$2 library=$3 stub=$4
shift 4
mount --make-rprivate /
mount -t tmpfs none "$root"
for each in /*; do
    if [ "$each" = /proc ] || [ "$each" = /app ]; then
        continue
    elif [ -L "$each" ]; then
        cp -P "$each" "$root$each"
    elif [ -d "$each" ]; then
        mkdir "$root$each"
        mount --rbind "$each" "$root$each"
    fi
done
mkdir -p "$root/proc" "$root/app/bin" "$root/app/old"
cp "$python" "$root/app/bin/"
cp -r "$stub" "$root/app/cuda"
[ "$library" = none ] || cp "$library" "$root/app/"
mount -t proc proc "$root/proc"
cd "$root"
pivot_root . app/old
umount -l /app/old
[ "$library" = none ] || export LD_PRELOAD="/app/${library##*/}"
exec "/app/bin/${python##*/}" "$@"
