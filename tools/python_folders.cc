#include "python_folders.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "text_files.h"

namespace cgx::tool {
namespace {

namespace fs = std::filesystem;

std::string valueOf(const Lookup& lookup, const char* name) {
  const char* value = lookup(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool isPython(const std::string& path) { return fs::path(path).filename().string().starts_with("python"); }

/// From "#!/opt/x/bin/python3" or "#!/usr/bin/env [-S] python3 -u"; empty when it is another language's.
std::string interpreterOfScript(const std::string& path, const std::string& searchPath) {
  const std::string head = readText(path, 256);
  if (!head.starts_with("#!")) return {};
  std::vector<std::string> words = splitAny(std::string_view(head).substr(2, head.find('\n') - 2), " \t");
  if (!words.empty() && fs::path(words.front()).filename() == "env") {
    words.erase(words.begin());
    std::erase_if(words, [](const std::string& w) { return w.starts_with('-') || w.find('=') != std::string::npos; });
  }
  return !words.empty() && isPython(words.front()) ? onPath(words.front(), searchPath) : std::string();
}

/// "python3.11" when the interpreter's file says so, else any Python 3.
std::string versionedName(const std::string& interpreter) {
  std::error_code ignored;
  const std::string name = fs::canonical(interpreter, ignored).filename().string();
  const bool minor = name.starts_with("python3.") && name.size() > 8 && name[8] >= '0' && name[8] <= '9';
  return minor ? name.substr(0, name.find_first_not_of("0123456789", 8)) : std::string();
}

/// lib/python3.11/site-packages and the like below `prefix`.
void addPackages(const std::string& prefix, const std::string& version, const char* kind,
                 std::vector<std::string>& packages) {
  for (const char* lib : {"lib", "lib64"}) {
    const std::string base = prefix + "/" + lib;
    for (const std::string& name : listFolder(base))
      if (version.empty() ? name.starts_with("python3.") : name == version)
        packages.push_back(base + "/" + name + "/" + kind);
  }
}

std::string prefixOf(const std::string& interpreter) {
  return fs::path(interpreter).parent_path().parent_path().string();
}

struct Environment {
  bool isOne = false;
  bool seesSystem = true;
  std::string home;  // the folder of the Python that it was made from
};

/// pyvenv.cfg: "home = /usr/bin", "include-system-site-packages = false".
Environment environmentAt(const std::string& prefix) {
  Environment found;
  for (const std::string& line : splitAny(readText(prefix + "/pyvenv.cfg"), "\n")) {
    const std::vector<std::string> words = splitAny(line, " =\t\r");
    if (words.size() < 2) continue;
    found.isOne = true;
    if (words[0] == "home") found.home = words[1];
    if (words[0] == "include-system-site-packages") found.seesSystem = words[1] == "true";
  }
  return found;
}

}  // namespace

std::string pythonOf(const std::string& command, const Lookup& lookup) {
  const std::string path = valueOf(lookup, "PATH");
  const std::string program = onPath(command, path);
  if (!program.empty() && isPython(program)) return program;
  std::string python = program.empty() ? std::string() : interpreterOfScript(program, path);
  for (const char* name : {"python3", "python"})
    if (python.empty()) python = onPath(name, path);
  return python;
}

PythonFolders pythonFoldersFor(const std::string& command, const Lookup& lookup, const std::string& root) {
  PythonFolders folders{.packages = splitAny(valueOf(lookup, "PYTHONPATH"), ":"), .libraries = {}};
  const std::string python = pythonOf(command, lookup);
  if (python.empty()) return folders;
  const std::string version = versionedName(python);
  const std::string prefix = prefixOf(python);
  const Environment environment = environmentAt(prefix);
  const std::string home = valueOf(lookup, "HOME");
  if (environment.seesSystem && !home.empty() && valueOf(lookup, "PYTHONNOUSERSITE").empty())
    addPackages(home + "/.local", version, "site-packages", folders.packages);
  std::vector<std::string> prefixes{prefix};
  if (environment.isOne && environment.seesSystem && !environment.home.empty())
    prefixes.push_back(fs::path(environment.home).parent_path().string());
  std::error_code ignored;
  const std::string real = prefixOf(fs::canonical(python, ignored).string());
  // A link in another folder is the same Python, unless it is an environment's.
  if (environment.seesSystem && !real.empty()) prefixes.push_back(real);
  for (const std::string& one : prefixes) {
    addPackages(one, version, "site-packages", folders.packages);
    folders.libraries.push_back(one + "/lib");
  }
  if (environment.seesSystem) {  // Debian's own folders
    addPackages(root + "/usr/local", version, "dist-packages", folders.packages);
    folders.packages.push_back(root + "/usr/lib/python3/dist-packages");
  }
  return folders;
}

}  // namespace cgx::tool
