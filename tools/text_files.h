// Small text files, folders and lists, where absence is an answer and no error. Knows no file in particular.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cgx::tool {

/// The first `most` bytes; empty when it cannot be read.
std::string readText(const std::string& path, std::size_t most = 1 << 16);
/// Names in a folder, sorted; empty when it cannot be read.
std::vector<std::string> listFolder(const std::string& path);
/// The non-empty parts between any of `separators`.
std::vector<std::string> splitAny(std::string_view text, std::string_view separators);
/// The folders of /etc/ld.so.conf with what it includes, then the loader's own.
std::vector<std::string> loaderFolders(const std::string& root);
/// As a shell finds a program: `command` itself if it has a slash, else the first executable file on PATH; or empty.
std::string onPath(const std::string& command, std::string_view path);
/// `value` as one word of a POSIX shell; plain words stay readable.
std::string shellQuoted(const std::string& value);

}  // namespace cgx::tool
