"""Whose a record is stands in the spool under a number; what that stands for may be lost."""

from __future__ import annotations

from ildm.core.spool import Delivery
from ildm.state.spool.records import Header, decode_header, encode, encode_header, encode_name, salt_of
from ildm.state.spool.segments import number_of
from tests.state.spool.lives import Lives, record, segments


def test_a_spool_opens_although_it_cannot_say_any_more_whose_its_records_are() -> None:
    lives = Lives()
    one = record(1, messages=3)
    lsn = lives.spool.append(one, [Delivery("link/b/0", 1)])
    lives.spool.commit()
    file = lives.disk.files[segments(lives.disk)[0]]
    assert file.content.count(b"link/b/0") == 2
    file.content[:] = file.content.replace(b"link/b/0", b"link/?/0")
    for _ in range(2):  # the first of these lives begins a segment of its own, with all names
        spool = lives.kill()
        (name,) = spool.consumers()
        (stored,) = spool.consumer(name).read(1000)
        assert (stored.lsn, stored.record.frames) == (lsn, one.frames)
    assert lives.events().count("a part of the spool is damaged") >= 1
    lives.spool.consumer(name).free(lsn, 0, 3)
    lives.spool.commit()
    assert lives.kill().consumers() == []


def test_no_segment_begins_before_the_first_number() -> None:
    assert decode_header(encode_header(Header(b"01234567", 1, 1))) == Header(b"01234567", 1, 1)
    assert decode_header(encode_header(Header(b"01234567", 0, 1))) is None


def test_a_number_that_no_consumer_can_have_does_not_use_up_the_others() -> None:
    lives = Lives()
    lsn = lives.spool.append(record(1), [Delivery("link/b/0", 1)])
    lives.spool.commit()
    (name, file), *_ = lives.disk.files.items()
    header = decode_header(bytes(file.content))
    number = number_of(name)
    assert header is not None
    assert number is not None
    entry = encode_name((1 << 32) - 1, "link/z/0")
    end = lives.spool.segments.segments[-1].end
    file.content[end : end + 8 + len(entry)] = encode(salt_of(header.key, number), entry) + entry
    spool = lives.kill()
    new = spool.append(record(2), [Delivery("link/c/0", 1)])
    spool.commit()
    spool = lives.kill()
    found = {name: [stored.lsn for stored in spool.consumer(name).read(1000)] for name in spool.consumers()}
    assert found == {"link/b/0": [lsn], "link/c/0": [new]}
