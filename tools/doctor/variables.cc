#include "doctor/variables.h"

#include <fstream>

namespace cgx::tool::doctor {
namespace {

void readFile(const std::string& file, std::vector<FileLine>* out) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t sign = line.find('=');
    if (line.starts_with('#') || sign == std::string::npos || sign == 0) continue;
    out->push_back({line.substr(0, sign), line.substr(sign + 1), file});
  }
}

}  // namespace

std::vector<FileLine> fileLines(const Lookup& lookup, const std::string& root) {
  std::vector<FileLine> lines;
  if (const char* named = lookup("NCCL_CONF_FILE"); named != nullptr && *named != '\0') {
    readFile(named, &lines);
  } else if (const char* home = lookup("HOME"); home != nullptr) {
    readFile(std::string(home) + "/.nccl.conf", &lines);
  }
  readFile(root + "/etc/nccl.conf", &lines);
  return lines;
}

Variable variable(const Lookup& lookup, const std::vector<FileLine>& lines, const std::string& name) {
  if (const char* value = lookup(name.c_str()); value != nullptr) return {value, "environment"};
  for (const FileLine& line : lines)
    if (line.name == name) return {line.value, line.file};
  return {};
}

}  // namespace cgx::tool::doctor
