# Python: an environment, compiled modules, pickles, databases, archives, mappings and processes that share files.
"$PYTHON" -m venv --without-pip env; env/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'
mkdir -p package/sub; echo 'value = 42' > package/sub/module.py; touch package/__init__.py package/sub/__init__.py
env/bin/python -m compileall -q package; find package -name '*.pyc' | wc -l
env/bin/python -c 'from package.sub import module; print(module.value, module.__cached__ is not None)'
sed -i s/42/4321/ package/sub/module.py; env/bin/python -c 'from package.sub.module import value; print(value)'
cat > work.py <<'P'
import concurrent.futures, csv, dbm.dumb, fcntl, hashlib, json, mmap, os, pathlib, pickle, random, shelve, shutil, sqlite3, tarfile, tempfile, zipfile

numbers = random.Random(7)
here = pathlib.Path()
data = {number: numbers.randbytes(numbers.randrange(5000)) for number in range(400)}
pathlib.Path("data.pickle").write_bytes(pickle.dumps(data, protocol=5))
print(pickle.loads(pathlib.Path("data.pickle").read_bytes()) == data)
with shelve.open("shelf", dumb := "n") as shelf:
    for number, value in data.items():
        shelf[str(number)] = value
with shelve.open("shelf", "r") as shelf:
    print(all(shelf[str(number)] == value for number, value in data.items()))
with sqlite3.connect("py.db") as base:
    base.execute("create table t (k, v)")
    base.executemany("insert into t values (?, ?)", data.items())
    print(base.execute("select count(*), sum(length(v)) from t").fetchone(), base.execute("pragma integrity_check").fetchone())
with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    for number, value in data.items():
        archive.writestr(f"x/{number}", value)
with zipfile.ZipFile("a.zip") as archive:
    archive.extractall("unzipped")
    print(archive.testzip(), sum((here / "unzipped/x" / str(number)).read_bytes() == value for number, value in data.items()))
with tarfile.open("a.tar.gz", "w:gz") as archive:
    archive.add("unzipped")
with tarfile.open("a.tar.gz") as archive:
    archive.extractall("untarred", filter="data")
print(len(list(here.glob("untarred/**/*"))))
with open("mapped", "w+b") as file:
    file.truncate(1 << 22)
    with mmap.mmap(file.fileno(), 0) as view:
        for number in range(1000):
            at = numbers.randrange(1 << 22)
            view[at : at + 1] = bytes([number % 256])
        digest = hashlib.sha256(view).hexdigest()
    file.seek(0)
    print(digest == hashlib.sha256(file.read()).hexdigest(), digest[:8])


def count(times):
    for _ in range(times):
        with open("counter", "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            number = int(file.read() or 0)
            file.seek(0)
            file.write(str(number + 1))
            file.flush()


def append(who):
    with open("log", "a", buffering=1) as file:
        for number in range(200):
            file.write(f"{who}:{number}:{'x' * (number % 90)}\n")


pathlib.Path("counter").write_text("0")
with concurrent.futures.ProcessPoolExecutor(4) as pool:
    list(pool.map(count, [50] * 4))
    list(pool.map(append, range(4)))
print(pathlib.Path("counter").read_text())
lines = pathlib.Path("log").read_text().splitlines()
print(len(lines), sorted(lines) == sorted(f"{who}:{number}:{'x' * (number % 90)}" for who in range(4) for number in range(200)))
with tempfile.TemporaryFile(dir=".") as file, tempfile.NamedTemporaryFile(dir=".") as named, tempfile.SpooledTemporaryFile(10, dir=".") as spooled:
    for one in (file, named, spooled):
        one.write(b"temporary")
        one.seek(0)
    print(file.read(), named.read(), spooled.read())
with open("t.csv", "w", newline="") as file:
    csv.writer(file).writerows([number, number**2] for number in range(10_000))
print(hashlib.sha256(pathlib.Path("t.csv").read_bytes()).hexdigest()[:8], os.path.getsize("t.csv"))
shutil.copytree("unzipped", "copied", copy_function=shutil.copy2)
print(shutil.disk_usage(".").total > 0, len(list(here.glob("copied/**/*"))), json.dumps(sorted(entry.name for entry in os.scandir("."))))
shutil.rmtree("copied")
P
env/bin/python work.py
