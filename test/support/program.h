// A started program whose output goes to a file, so that nothing has to be read while it runs.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace cgx::test {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

struct Outcome {
  int status = -1;   // exit status, or -signal
  std::string text;  // stdout and stderr
};

class Program {
 public:
  /// `words` begin with the program's path. `network`: a named network namespace to run in; empty: this one.
  Program(const Words& words, const Variables& variables, const std::string& network = "") {
    static int number = 0;
    output_ = std::filesystem::temp_directory_path() /
              ("cgx-program-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int fd = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    if (!network.empty()) {
      const int space = ::open(("/run/netns/" + network).c_str(), O_RDONLY | O_CLOEXEC);
      if (space < 0 || ::setns(space, CLONE_NEWNET) != 0) ::_exit(125);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    Words all = words;
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(words.front().c_str(), argv.data());
    ::_exit(126);
  }
  Outcome wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    std::stringstream text;
    text << std::ifstream(output_).rdbuf();
    std::filesystem::remove(output_);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), text.str()};
  }
  pid_t pid() const { return pid_; }

 private:
  std::filesystem::path output_;
  pid_t pid_ = -1;
};

}  // namespace cgx::test
