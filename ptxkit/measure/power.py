"""SM clock, power and temperature while something runs, read from the driver's management library by a thread."""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from types import TracebackType
from typing import Any, NamedTuple

_CLOCK_SM = 1
_TEMPERATURE_GPU = 0
_FIELD_POWER_INSTANT = 186
_ROUTINES = ("nvmlInit_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetClockInfo",
             "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature", "nvmlDeviceGetFieldValues")


class _FieldValue(ctypes.Structure):
    _fields_ = (("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong), ("latency", ctypes.c_longlong),
                ("kind", ctypes.c_int), ("status", ctypes.c_int), ("value", ctypes.c_uint64))


class Sample(NamedTuple):
    """One reading: host seconds (`time.perf_counter`), MHz of the SMs, watts at this moment, degrees Celsius (0: not told)."""

    when: float
    mhz: int
    watts: float
    celsius: int = 0


class Reader:
    """One GPU's sensors. `available` is False, and `read` gives None, where the library or the GPU is missing."""

    def __init__(self, ordinal: int = 0, uuid: str = "") -> None:
        self._handle = ctypes.c_void_p()
        self.available = False
        try:
            self._nvml: Any = ctypes.CDLL("libnvidia-ml.so.1")
            for routine in _ROUTINES:
                getattr(self._nvml, routine).restype = ctypes.c_int
        except (OSError, AttributeError):
            return
        if self._nvml.nvmlInit_v2() != 0:
            return
        by_uuid = bool(uuid) and self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._handle)) == 0
        self.available = by_uuid or self._nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(ordinal), ctypes.byref(self._handle)) == 0

    def read(self) -> Sample | None:
        if not self.available:
            return None
        mhz = ctypes.c_uint()
        self._nvml.nvmlDeviceGetClockInfo(self._handle, _CLOCK_SM, ctypes.byref(mhz))
        return Sample(time.perf_counter(), mhz.value, self._watts(), self.celsius() or 0)

    def _watts(self) -> float:
        """Of this moment; where the driver does not tell that, its average of the last second."""
        value = _FieldValue(field=_FIELD_POWER_INSTANT)
        if self._nvml.nvmlDeviceGetFieldValues(self._handle, 1, ctypes.byref(value)) == 0 and value.status == 0 and value.value:
            return float(value.value & 0xFFFFFFFF) / 1000
        milliwatts = ctypes.c_uint()
        self._nvml.nvmlDeviceGetPowerUsage(self._handle, ctypes.byref(milliwatts))
        return milliwatts.value / 1000

    def celsius(self) -> int | None:
        if not self.available:
            return None
        found = ctypes.c_uint()
        self._nvml.nvmlDeviceGetTemperature(self._handle, _TEMPERATURE_GPU, ctypes.byref(found))
        return found.value


class Sampler:
    """`with Sampler(reader) as sampler:` reads every few milliseconds until the block ends."""

    def __init__(self, reader: Any, period_s: float = 0.004) -> None:
        self.reader = reader
        self.period_s = period_s
        self.samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            sample = self.reader.read()
            if sample is None:
                return
            self.samples.append(sample)
            if self._stop.wait(self.period_s):
                return

    def within(self, spans: list[tuple[float, float]] | None = None) -> dict[str, float]:
        """Median MHz and degrees and mean W of the samples inside these spans of host time (of all, for None); empty when there is none."""
        chosen = [s for s in self.samples if spans is None or any(begin <= s.when <= end for begin, end in spans)]
        if not chosen:
            return {}
        found = {"mhz": float(statistics.median(s.mhz for s in chosen)), "watts": round(statistics.fmean(s.watts for s in chosen), 1)}
        warm = [s.celsius for s in chosen if s.celsius]
        return {**found, "celsius": float(statistics.median(warm))} if warm else found


__all__ = ["Reader", "Sample", "Sampler"]
