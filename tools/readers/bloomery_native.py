"""The filters of bloomery.py by the C library libbloomery: the same questions, twenty times as fast in batches, and filters can be
built, united and written. One file, Python 3.8 and later; bloomery.py, whose Copy it takes over, lies beside it.

    filter = bloomery_native.open("nb-1-big-Filter.db")
    b"key" in filter
    filter.has_many([b"key", b"other"])   # [True, False]

    copy = bloomery_native.Copy("http://127.0.0.1:9379/filters/seen")

An item is bytes or another buffer, whose bytes count, or a str, which is its UTF-8. BLOOMERY_LIBRARY names another library than the
installed one. Threads: any number may ask; a thread that adds or merges needs the filter for itself."""
import array
import ctypes
import itertools
import os

import bloomery

LAYOUTS = ("na", "me", "ka", "redisbloom", "redisbloom32")


class Keyed(OSError):
    """The items of this filter are hashed under a key: only its server can be asked."""


class Full(Exception):
    """The filter has taken the items that it was made for; `done` items of the call before this one."""
    done = 0


_P, _S, _D, _N = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double, ctypes.c_size_t
_U64, _INT, _UINT = ctypes.c_uint64, ctypes.c_int, ctypes.c_uint
_STATUS = (_S, _N)  # text and size
_WORD = ctypes.sizeof(_N)
_FUNCTIONS = {  # name: result, arguments
    "version": (_S,),
    "read": (_INT, _S, _N, _S, _INT, _P, *_STATUS),
    "open": (_INT, _S, _S, _P, *_STATUS),
    "create": (_INT, _D, _U64, _S, _P, *_STATUS),
    "free": (None, _P),
    "has": (_INT, _P, _S, _N),
    "has_many": (None, _P, _P, _N, _P),
    "add_many": (_INT, _P, _P, _N, _P, _P, *_STATUS),
    "merge": (_INT, _P, _P, *_STATUS),
    "bytes": (_U64, _P),
    "write": (_INT, _P, _P, _N, *_STATUS),
    "save": (_INT, _P, _S, *_STATUS),
    "layout": (_S, _P),
    "layers": (_UINT, _P),
    "layer_bits": (_U64, _P, _UINT),
    "layer_hashes": (_UINT, _P, _UINT),
    "bits_set": (_U64, _P),
    "rate": (_D, _P),
    "estimate": (_D, _P),
}


def _load():
    library = ctypes.CDLL(os.environ.get("BLOOMERY_LIBRARY", "libbloomery.so.0"))
    functions = {}
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, "bloomery_" + name)
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    return functions


_lib = _load()
_ERRORS = {1: ValueError, 2: ValueError, 3: MemoryError, 4: Keyed, 5: Full, 6: OSError}
version = _lib["version"]().decode()


def _call(name, *arguments):
    text = ctypes.create_string_buffer(512)
    status = _lib[name](*arguments, text, len(text))
    if status:
        raise _ERRORS[status](text.value.decode())


def _bytes(item):
    if isinstance(item, bytes):
        return item
    return item.encode() if isinstance(item, str) else memoryview(item).tobytes()


class _Items:
    """An array of struct bloomery_item, made without a step of Python for each."""

    def __init__(self, items):
        items = [item if type(item) is bytes else _bytes(item) for item in items]
        self.n = len(items)
        self._bytes = b"".join(items)
        sizes = array.array("L", map(len, items))
        begin = ctypes.cast(ctypes.c_char_p(self._bytes), ctypes.c_void_p).value
        self._pairs = array.array("L", bytes(2 * _WORD * self.n))  # pointers and sizes
        self._pairs[0::2] = array.array("L", itertools.accumulate(sizes, initial=begin))[:self.n]
        self._pairs[1::2] = sizes
        self.address = self._pairs.buffer_info()[0]


class Filter:
    """The bytes of one or more files, one behind the other: the layers of a filter, in one of LAYOUTS; the arguments and errors are
    those of bloomery.Filter. create() and open() make others."""

    def __init__(self, data, layout="na", layers=None):
        data = bytes(data)
        self._take("read", data, len(data), layout.encode(), -1 if layers is None else layers)

    def _take(self, name, *arguments):
        self._filter = None
        filter_out = ctypes.c_void_p()
        _call(name, *arguments, ctypes.byref(filter_out))
        self._filter = filter_out

    def __del__(self):
        if getattr(self, "_filter", None):
            _lib["free"](self._filter)

    def __contains__(self, item):
        item = _bytes(item)
        return _lib["has"](self._filter, item, len(item)) == 1

    def has_many(self, items):
        """A list of True and False."""
        items = _Items(items)
        answers = (ctypes.c_ubyte * items.n)()
        _lib["has_many"](self._filter, items.address, items.n, answers)
        return list(map(bool, bytes(answers)))

    def add_many(self, items):
        """Returns how many seemed to be new. Full: `done` of them have been added."""
        items = _Items(items)
        done, added = _N(), _U64()
        try:
            _call("add_many", self._filter, items.address, items.n, ctypes.byref(done), ctypes.byref(added))
        except Full as full:
            full.done = done.value
            raise
        return added.value

    def add(self, item):
        """Whether it seemed to be new."""
        return self.add_many([item]) == 1

    def merge(self, other):
        """Adds all items of a filter of equal layers."""
        _call("merge", self._filter, other._filter)

    def __bytes__(self):
        """As the constructor takes them."""
        out = ctypes.create_string_buffer(_lib["bytes"](self._filter))
        _call("write", self._filter, out, len(out))
        return out.raw

    def save(self, path):
        _call("save", self._filter, os.fsencode(path))

    @property
    def layout(self):
        return _lib["layout"](self._filter).decode()

    @property
    def layers(self):
        """Bits and hashes of each, the oldest first."""
        return [(_lib["layer_bits"](self._filter, i), _lib["layer_hashes"](self._filter, i))
                for i in range(_lib["layers"](self._filter))]

    @property
    def bits_set(self):
        return _lib["bits_set"](self._filter)

    @property
    def rate(self):
        """Of false positives, from the bits."""
        return _lib["rate"](self._filter)

    @property
    def estimate(self):
        """The number of distinct items, from the bits."""
        return _lib["estimate"](self._filter)


def open(path, layout=None):
    """The filter in a file. `layout` None: that of the SSTable version in its name."""
    made = Filter.__new__(Filter)
    made._take("open", os.fsencode(path), layout and layout.encode())
    return made


def create(error, capacity, layout="na"):
    """An empty filter for this many items at this rate of false positives."""
    made = Filter.__new__(Filter)
    made._take("create", error, capacity, layout.encode())
    return made


class Copy(bloomery.Copy):
    """bloomery.Copy, which asks the library."""
    Filter = Filter

    def has_many(self, items):
        return self._now().has_many(items)
