"""Opcodes, matrix descriptors, tensor maps and swizzles explained."""

from __future__ import annotations
