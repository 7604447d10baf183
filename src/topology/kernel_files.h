// Small files and folders below /sys and /proc. Absence is an answer. Knows no file in particular.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cgx::topology {

/// The first 4096 bytes; empty when it cannot be read.
std::string readStart(const std::string& path);
/// The first line, without what ends it; empty when it cannot be read.
std::string readLine(const std::string& path);
/// A decimal number at the start of the first line.
int readInt(const std::string& path, int otherwise);
/// Names in a folder, sorted, without dot files.
std::vector<std::string> listFolder(const std::string& path);
/// Links resolved; empty when there is nothing.
std::string realPath(const std::string& path);
/// /sys/devices as sys, devices.
std::vector<std::string_view> partsOf(std::string_view path);
/// 0000:17:00.0
bool isPciFunction(std::string_view name);

}  // namespace cgx::topology
