"""A mended copy of Jittor's sources, on which the program runs with every supported Python and NumPy.

Jittor compiles itself from the folder that it is imported from: the copy is in the folder of Jittor's caches, shared by
all virtual environments, and the installed package stays as it is. In the copy a few texts of Jittor 1.3.11 are
replaced (CHANGES), each with its reason and source, and what is never used is left out.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from data.errors import UserError
from data.io.lock import waited_for


@dataclass(frozen=True)
class Change:
    """A text of one of Jittor's files, found `times` times, and its replacement."""

    file: str
    old: str
    new: str
    times: int = 1


# Folders that are not copied: tests, which take a twentieth of the compilation, example networks and notebooks.
UNUSED_FOLDERS = ("test", "models", "notebook", "demo")

COMPILER, UTILITIES = "jittor/compiler.py", "jittor_utils/__init__.py"
PARALLEL, CALLER = "jittor/src/parallel_compiler.cc", "jittor/src/pyjt/py_caller.cc"
NUMPY_H, NUMPY_CC = "jittor/src/pyjt/numpy.h", "jittor/src/pyjt/numpy.cc"

# Python 3.13: a name that `exec` binds is not in `locals()` (PEP 667).
IMPORTS = (
    Change(COMPILER, 'exec(f"import {gen_name}")', "mod = __import__(gen_name)"),
    Change(COMPILER, "    mod = locals()[gen_name]\n", ""),
    Change(UTILITIES, 'exec(f"import {hash}")', "mod = __import__(hash)", times=2),
    Change(UTILITIES, "    mod = locals()[hash]\n", ""),
)
# Python 3.14: a pool starts from a server process, which imports the main module again (docs.python.org,
# multiprocessing, "Contexts and start methods").
POOL = (Change(UTILITIES, "p = Pool(pool_size,", "p = mp.get_context('fork').Pool(pool_size,"),)
# NumPy 2 moved `elsize` within its descriptor and PyArray_CopyInto within its table, and renamed numpy.core (numpy.org,
# "NumPy 2.0 migration guide", and numpy/_core/code_generators/numpy_api.py).
NUMPY = (
    Change(NUMPY_H, "size *= arr->descr->elsize;", "size *= get_type_str(arr).dsize();"),
    Change(
        NUMPY_CC,
        "fill(PyArray_CopyInto, 82);",
        "fill(PyArray_CopyInto, PyArray_GetNDArrayCFeatureVersion() >= 0x12 ? 50 : 82);",
    ),
    Change(
        NUMPY_CC,
        'PyObjHolder np(PyImport_ImportModule("numpy.core.multiarray"), "numpy is not installed");',
        'PyObject* multiarray = PyImport_ImportModule("numpy._core.multiarray");\n'
        "    if (!multiarray) {\n"
        "        PyErr_Clear();\n"
        '        multiarray = PyImport_ImportModule("numpy.core.multiarray");\n'
        "    }\n"
        '    PyObjHolder np(multiarray, "numpy is not installed");',
    ),
    # It reads more of a descriptor than its type number; the rest of this one was never set.
    Change(
        "jittor/src/pyjt/py_converter.h",
        "        PyArrayDescr_Proxy array_descr;\n"
        "        array_descr.type_num = 5; // 5: int32\n"
        "        int value;\n"
        "        PyArray_CastScalarToCtype(obj, &value, &array_descr);\n"
        "        var_slice->set_int(value);\n",
        "        PyObjHolder number(PyNumber_Long(obj));\n        var_slice->set_int(PyLong_AsLong(number.obj));\n",
    ),
)
# Arrays that Jittor misread without an error: long double as double, other byte orders; its refusal of types with high
# numbers read past a table.
ARRAYS = (
    Change(NUMPY_CC, "ns_float32, ns_float64, ns_float64,", "ns_float32, ns_float64, ns_void,"),
    Change(
        NUMPY_H,
        "    CHECK(type != ns_void)",
        "    CHECK(obj->descr->byteorder != '>') << \"Numpy byte order not support\";\n    CHECK(type != ns_void)",
    ),
    Change(NUMPY_H, " << NPY_END << npy2ns[obj->descr->type_num];", ";"),
)
# A module's dictionary takes over a reference that it was not given, and freed memory is read at the end of a process
# (docs.python.org, C API: PyImport_AddModule returns a borrowed reference, which PyModule_AddObject steals).
REFERENCE = (
    Change("jittor/pyjt_compiler.py", "        ASSERT(sub);\n", "        ASSERT(sub);\n        Py_INCREF(sub);\n"),
)
# GCC 16 refuses a member that does not exist in a template that is not used (gcc.gnu.org, "Porting to GCC 16").
COMPILERS = (Change("jittor/src/misc/stack_vector.h", "self->at(index)", "self->a[index]"),)
# Compile threads called Python without its lock. The thread that waits for them and holds the lock makes the calls.
PYTHON_CALLS = (
    Change(CALLER, "namespace jittor {\n", "#include <deque>\n#include <future>\n\nnamespace jittor {\n"),
    Change(CALLER, "string py_caller(", "static string call_python("),
    Change(
        CALLER,
        "    return from_py_object<string>(ret.obj);\n}\n",
        "    return from_py_object<string>(ret.obj);\n}\n\n"
        "static std::mutex calls_mutex;\n"
        "static std::deque<std::packaged_task<string()>*> calls;\n\n"
        "void make_python_calls() {\n"
        "    while (true) {\n"
        "        std::packaged_task<string()>* call;\n"
        "        {\n"
        "            std::lock_guard<std::mutex> lock(calls_mutex);\n"
        "            if (calls.empty()) return;\n"
        "            call = calls.front();\n"
        "            calls.pop_front();\n"
        "        }\n"
        "        (*call)();\n"
        "    }\n"
        "}\n\n"
        "string py_caller(const string& mod_func, const vector<string>& args, const map<string,string>& kw) {\n"
        "    if (PyGILState_Check()) return call_python(mod_func, args, kw);\n"
        "    std::packaged_task<string()> call([&]() { return call_python(mod_func, args, kw); });\n"
        "    auto result = call.get_future();\n"
        "    {\n"
        "        std::lock_guard<std::mutex> lock(calls_mutex);\n"
        "        calls.push_back(&call);\n"
        "    }\n"
        "    return result.get();\n"
        "}\n",
    ),
    Change(PARALLEL, "struct SimpleThreads;\n", "void make_python_calls();  // py_caller.cc\nstruct SimpleThreads;\n"),
    Change(
        PARALLEL,
        "std::this_thread::sleep_for(1ms);",
        "make_python_calls();\n                std::this_thread::sleep_for(1ms);",
    ),
    Change(
        PARALLEL,
        "        int i = std::max(std::min(ai-active_threads, n), 0);\n",
        "        make_python_calls();\n        int i = std::max(std::min(ai-active_threads, n), 0);\n",
    ),
    # It slept for up to a second, against its own comment, after the last operation was compiled.
    Change(PARALLEL, "std::min(sleep_us*2, 1000000);", "std::min(sleep_us*2, 10000);"),
)
# After a fault no handler runs: that of the compile threads freed them a second time.
FAULT = (
    Change(
        "jittor/src/utils/log.cc",
        "    segfault_happen = 1;\n    exit(1);\n",
        "    segfault_happen = 1;\n    do_exit();\n",
    ),
)
# Jittor's handler of SIGCHLD ends the process if a compiler is killed; it took a stopped one for a killed one.
STOPPED = (Change("jittor/src/utils/log.cc", "sa.sa_flags = SA_SIGINFO;", "sa.sa_flags = SA_SIGINFO | SA_NOCLDSTOP;"),)
# It stored each new JITTOR_HOME for later runs, in a file that another process read half written; it is always given.
HOME = (
    Change(
        UTILITIES,
        '    if os.path.exists(src_path_file):\n        with open(src_path_file,"r") as f:\n'
        "            data = json.load(f)\n",
        "",
    ),
    Change(
        UTILITIES,
        '    if default_path != _home_path:\n        with open(src_path_file,"w") as f:\n'
        "            data['JITTOR_HOME'] = _home_path\n            json.dump(data,f)\n",
        "",
    ),
)
# The first start: the helper was compiled twice, to store a key by which later runs ended to build it anew; the folder
# of its cache is named by everything that it depends on.
HELPER = (
    Change(COMPILER, "    recompile = compile(", "    if jit_utils.cc:\n        return\n    compile("),
    Change(
        COMPILER,
        '    if recompile and jit_utils.cc:\n        LOG.e("jit_utils updated, please rerun your command.")\n'
        "        sys.exit(0)\n",
        "",
    ),
    Change(
        COMPILER,
        "        # recompile, generate cache key\n"
        '        compile(cc_path, cc_flags+f" {opt_flags} ", files, '
        "jit_utils.cache_path+'/jit_utils_core'+extension_suffix, True)\n",
        "",
    ),
)
# The largest source, in parallel with the others.
DATA_SOURCE = (
    Change(COMPILER, "def compile(compiler, flags,", "first_cmds = []\n\ndef compile(compiler, flags,"),
    Change(COMPILER, "    jit_utils.run_cmds(cmds,", "    jit_utils.run_cmds(first_cmds + cmds,"),
    Change(
        COMPILER,
        '        run_cmd(fix_cl_flags(f"\\"{cc_path}\\" {dflags}',
        '        first_cmds.append(fix_cl_flags(f"\\"{cc_path}\\" {dflags}',
    ),
    Change(
        COMPILER,
        "        os.remove(data_s_path)\n        with open(data_gz_md5_path, 'w') as f:\n            f.write(md5)\n",
        "",
    ),
    Change(
        COMPILER,
        "compile(cc_path, cc_flags+opt_flags, files, 'jittor_core'+extension_suffix)\n",
        "compile(cc_path, cc_flags+opt_flags, files, 'jittor_core'+extension_suffix)\n"
        "if first_cmds:\n"
        "    first_cmds.clear()\n"
        "    os.remove(data_s_path)\n"
        "    with open(data_gz_md5_path, 'w') as f:\n"
        "        f.write(md5)\n",
    ),
)
# On the CPU, one compilation per folder: each of 140 files read the precompiled header and made the same templates.
# Static names that several files of a folder define are renamed; the files whose order matters keep it.
UNITS = (
    Change(
        COMPILER,
        "def gen_jit_tests():\n",
        "def in_units(files):\n"
        "    alone, units, made = set(at_beginning + at_last), {}, []\n"
        "    own = 'op_maker|register|jit_flags|cuda_flags|jit_compiler'\n"
        "    for name in files:\n"
        "        if name.endswith('.cc') and name not in alone and not re.search(own, name):\n"
        "            units.setdefault(os.path.dirname(name), []).append(os.path.join(jittor_path, name))\n"
        "        elif name not in at_last:\n"
        "            made.append(name)\n"
        "    for number, names in enumerate(units.values()):\n"
        "        text = ''\n"
        "        for index, name in enumerate(names):\n"
        "            with open(name, encoding='utf8') as f:\n"
        "                static = sorted(set(re.findall(r'^ *static (?:auto|int) (\\w+) =', f.read(), re.M)))\n"
        "            text += ''.join(f'#define {s} {s}_{index}\\n' for s in static)\n"
        "            text += f'#include \"{name}\"\\n' + ''.join(f'#undef {s}\\n' for s in static)\n"
        "        made.append(os.path.join(cache_path, 'gen', f'unit_{number}.cc'))\n"
        "        with open(made[-1], 'w', encoding='utf8') as f:\n"
        "            f.write(text)\n"
        "    return made + at_last\n\n"
        "def gen_jit_tests():\n",
    ),
    Change(
        COMPILER,
        'cc_flags += f" -l\\"jit_utils_core{lib_suffix}\\" "\n',
        'cc_flags += f" -l\\"jit_utils_core{lib_suffix}\\" "\nif not has_cuda:\n    files = in_units(files)\n',
    ),
)
# The generated calls from Python check arguments and call: to optimise them takes a tenth of the compilation, and saves
# 0.6 microseconds per call.
CALLS = (
    Change(
        "jittor/pyjt_compiler.py",
        '    src_code += f"""\n    #include "utils/seh.h"\n',
        '    src_code += f"""\n    #pragma GCC optimize ("O0")\n    #include "utils/seh.h"\n',
    ),
)
# Each operation was compiled to assembler with debugging information for a script to insert stores that bypass the
# caches. It found none to replace, and the path of the virtual environment was in the key of each compiled operation.
ASSEMBLER = (
    Change(
        "jittor/src/jit_compiler.cc",
        '#ifdef __linux__\n        cmd = python_path+" "+jittor_path+"/utils/asm_tuner.py "\n'
        '            "--cc_path=" + cmd;\n#endif\n',
        "",
    ),
)
# Other files define a static function of this name, which the precompiled header would declare.
STATIC_NAMES = (Change("jittor/src/opt/kernel_ir.h", "bool isvar(char x);\n", ""),)
CHANGES: tuple[Change, ...] = (
    *(*IMPORTS, *POOL, *NUMPY, *ARRAYS, *REFERENCE, *COMPILERS, *PYTHON_CALLS, *FAULT, *STOPPED),
    *(*HOME, *HELPER, *DATA_SOURCE, *UNITS, *CALLS, *ASSEMBLER, *STATIC_NAMES),
)

PACKAGES = ("jittor", "jittor_utils")
PREFIX, SCRATCH = "source-", "making-source-"
REQUIREMENT = "jittor>=1.3.11,<1.3.12"
INSTALL = "pip install -r requirements.txt"
INSTALL_ALONE = f'pip install --no-deps "{REQUIREMENT}"'  # where its own requirement of NumPy 1 cannot be met
REINSTALL = 'pip install --force-reinstall --no-deps "jittor==1.3.11.0"'
FIRST_OF_NUMPY_2 = (3, 13)  # the first Python for which there is no NumPy 1


def use(caches: Path) -> Path:
    """Make `import jittor` find the mended copy below `caches`, made if needed; returns its folder.

    Raises UserError if Jittor is not installed, is another version, or was imported before.
    """
    folder = mended(caches)
    for name in PACKAGES:
        module = sys.modules.get(name)
        if module is not None and not (module.__file__ or "").startswith(str(folder)):
            raise UserError(
                f"{name} was imported before this program, which uses a mended copy of it: import neus (or "
                "models.machine.backend.jt) first, then jittor"
            )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return folder


def mended(caches: Path) -> Path:
    """The folder below `caches` with the mended copy, made if needed. Of several processes one makes it."""
    root, version = installed(), importlib.metadata.version("jittor")
    key = hashlib.sha256(repr((CHANGES, UNUSED_FOLDERS)).encode()).hexdigest()[:12]
    folder = caches / f"{PREFIX}{version}-{key}"
    if not folder.is_dir():
        caches.mkdir(parents=True, exist_ok=True)
        with waited_for(caches):
            if not folder.is_dir():
                _make(root, folder, version)
    return folder


def installed() -> Path:
    """The folder that contains Jittor's installed packages, without importing them; raises UserError if none does."""
    paths = [path for path in sys.path if not Path(path).name.startswith(PREFIX)]
    specs = [importlib.machinery.PathFinder.find_spec(name, paths) for name in PACKAGES]
    origins = [Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None]
    if len(origins) < len(PACKAGES):
        raise UserError(f"Jittor is not installed in {sys.prefix}: {remedy()}")
    return origins[0].parent.parent


def remedy() -> str:
    """The command that installs Jittor for this Python."""
    return INSTALL if sys.version_info < FIRST_OF_NUMPY_2 else INSTALL_ALONE


def _make(root: Path, folder: Path, version: str) -> None:
    """Copy the packages below `root` to a temporary folder with the changes, and rename it."""
    for left in folder.parent.glob(f"{SCRATCH}*"):  # from killed processes: the lock excludes running ones
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=folder.parent))
    try:
        for name in PACKAGES:
            ignored = shutil.ignore_patterns(*UNUSED_FOLDERS, "__pycache__")
            # Contents only: the installed files may be read-only.
            shutil.copytree(root / name, scratch / name, ignore=ignored, copy_function=shutil.copyfile)
        for path in (scratch, *scratch.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        for change in CHANGES:
            apply(change, scratch, version)
        os.rename(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def apply(change: Change, root: Path, version: str) -> None:
    """Replace the text in a copy of Jittor `version` below `root`.

    Raises UserError, naming the version, if the text is not found as often as in the version that it was written for.
    """
    path = root / change.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(change.old) != change.times:
        raise UserError(
            f"Jittor {version} has another {change.file} than Jittor 1.3.11.0, which this program is for: {REINSTALL}"
        )
    path.write_text(text.replace(change.old, change.new), encoding="utf-8")
