// `cgx doctor`: what keeps NCCL from using the plugin, on this host or on all hosts of a job.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "doctor/checks.h"

namespace cgx::tool::doctor {

struct Options {
  std::string json;  // a file to write, or empty
  int comms = 1;
  int nodes = 0;  // 0: as many as take part, or not known
  bool alone = false;
  int rank = -1;
  int nranks = 0;
  std::string root;
  double timeoutSeconds = 60;
  double reachSeconds = 5;
  std::vector<std::string> hosts;
  std::string launcher;
  std::string program;               // on the hosts; empty: the path of this one
  std::vector<std::string> exports;  // NAME or NAME=value
  int member = -1;                   // this process is one of --hosts
};
void addFlags(CLI::App& command, Options* options);

/// Exit status: 0 no problem, 1 problems, 2 it could not be run or the file not be written.
int run(const Options& options, const Lookup& lookup);

}  // namespace cgx::tool::doctor
