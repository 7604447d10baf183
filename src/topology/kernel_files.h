// Small files and folders below /sys and /proc. Absence is an answer. Knows no file in particular.
#pragma once

#include <string>
#include <vector>

namespace cgx::topology {

/// The first line, without what ends it; empty when it cannot be read.
std::string readLine(const std::string& path);
/// A decimal number at the start of the first line.
int readInt(const std::string& path, int otherwise);
/// Names in a folder, sorted, without dot files.
std::vector<std::string> listFolder(const std::string& path);
/// Links resolved; empty when there is nothing.
std::string realPath(const std::string& path);
/// 0000:17:00.0
bool isPciFunction(const std::string& name);

}  // namespace cgx::topology
