"""RDB files and dumps of RedisBloom for an engine that knows fewer types, or an older version of the format."""

TYPE_MODULE_2 = 7
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def table():
    rows = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x95ac9329ac4bc9b5 if byte & 1 else 0)
        rows.append(byte)
    return rows


TABLE = table()


def crc64(data):
    crc = 0
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc


def of_version(dump, version):
    """A dump with another version of the format."""
    data = dump[:-10] + version.to_bytes(2, "little")
    return data + crc64(data).to_bytes(8, "little")


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def length(self):
        """A length, or a tuple with a string's encoding."""
        first = self.take(1)[0]
        if first >> 6 == 0:
            return first & 63
        if first >> 6 == 1:
            return (first & 63) << 8 | self.take(1)[0]
        if first >> 6 == 3:
            return (first & 63,)
        return int.from_bytes(self.take(8 if first == 0x81 else 4), "big")

    def skip_string(self):
        length = self.length()
        if length == (3,):  # LZF
            length, _ = self.length(), self.length()
        self.take({(0,): 1, (1,): 2, (2,): 4}.get(length, length))

    def skip_module(self):
        """Skips a value behind its type's id."""
        while (opcode := self.length()) != 0:
            if opcode in (1, 2):
                self.length()
            elif opcode == 5:
                self.skip_string()
            else:
                self.take({3: 4, 4: 8}[opcode])

    def skip_value(self, kind):
        """Skips a value of one of the engine's types."""
        if kind in (0, 9, 10, 11, 12, 13, 16, 17, 20):  # one string
            self.skip_string()
        elif kind in (1, 2, 14):
            for _ in range(self.length()):
                self.skip_string()
        elif kind == 4:
            for _ in range(2 * self.length()):
                self.skip_string()
        elif kind == 18:
            for _ in range(self.length()):
                self.length()
                self.skip_string()
        else:
            raise ValueError(f"a value of type {kind}")


def type_name(number):
    return "".join(LETTERS[number >> 10 + 6 * i & 63] for i in range(8, -1, -1))


def without_types(data, keep):
    """The file without values of other modules' types, and without the fields about its origin."""
    reader, out = Reader(data), b"REDIS0010"
    reader.take(9)
    begin = None  # of a key with what stands in front of it
    while True:
        at, opcode = reader.at, reader.take(1)[0]
        begin = at if begin is None else begin
        if opcode == 255:
            out += b"\xff"
            return out + crc64(out).to_bytes(8, "little")
        if opcode in (252, 253):
            reader.take(8 if opcode == 252 else 4)
        elif opcode == 250:  # about its origin
            reader.skip_string()
            reader.skip_string()
            begin = None
        elif opcode in (254, 251):
            for _ in range(1 if opcode == 254 else 2):
                reader.length()
            out += data[at:reader.at]
            begin = None
        elif opcode == 247:  # of a module, beside its values
            reader.length()
            reader.skip_module()
            begin = None
        else:
            reader.skip_string()
            name = type_name(reader.length()) if opcode == TYPE_MODULE_2 else None
            if name:
                reader.skip_module()
            else:
                reader.skip_value(opcode)
            if name is None or name in keep:
                out += data[begin:reader.at]
            begin = None
