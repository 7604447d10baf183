// What makes NCCL silently leave the plugin unused on this host, or a job fail on it. Checks are pure functions of
// Facts, so that each broken set-up is a test; collect.cc finds the facts.
#pragma once

#include <string>
#include <vector>

#include "cgx/activation.h"
#include "cgx/settings.h"
#include "doctor/host_facts.h"
#include "doctor/variables.h"
#include "nccl_finder.h"

namespace cgx::tool::doctor {

struct Facts {
  std::string hostIdentity;          // the same for all processes that share a network and a boot of a machine
  std::string host;                  // name, for messages
  Variable plugin;                   // NCCL_NET_PLUGIN
  Variable net;                      // NCCL_NET
  Variable collnet;                  // NCCL_COLLNET_ENABLE
  Variable refCount;                 // NCCL_NET_PLUGIN_REF_COUNT
  Variable algorithm;                // NCCL_ALGO
  Variable cudaQueues;               // CUDA_DEVICE_MAX_CONNECTIONS
  std::string opened;                // the library that NCCL would open; empty: none
  std::string openError;             // why not, in the loader's words
  bool ours = false;                 // it is this plugin, with a table for net and for collnet
  std::string build;                 // hash of the file; empty: not opened
  std::string initError;             // why the net half does not start; empty: it does
  std::vector<std::string> devices;  // of the started net half, as lines
  std::vector<FoundNccl> nccl;
  OtherPlugin tuner;
  OtherPlugin env;
  OtherPlugin defaultNet;   // libnccl-net.so, which jobs that name no plugin get
  std::string badSettings;  // the error of load(); empty: none
  std::vector<std::string> unknownSettings;
  Settings settings;            // in force; the defaults when bad
  unsigned long openFiles = 0;  // soft limit
  HostMemory memory;
  activation::Box box;
  std::vector<std::string> gpus;  // models
  int comms = 1;                  // communicators of the job that this process is in, as the user says
  int nodes = 0;                  // of the job; 0: not known
};

enum class Verdict : unsigned char { Ok, Note, Problem };
struct Check {
  std::string name;
  Verdict verdict = Verdict::Ok;
  std::string text;
  std::string remedy;  // of a problem
  bool operator==(const Check&) const = default;
};

Check ok(std::string name, std::string text);
Check note(std::string name, std::string text);
Check problem(std::string name, std::string text, std::string remedy);

/// All checks of a host, in the order in which NCCL would meet what they are about.
std::vector<Check> diagnose(const Facts& facts);

/// The facts of this host as `lookup` tells them, before the lines of NCCL's files became variables of the process.
/// Loads the plugin that a job would load; starts no communicator. `root` is put before the system's own paths.
Facts collect(const Lookup& lookup, const std::string& root = "");

/// Parts of diagnose(): memory, shared memory and limits; GPUs.
Check checkStaging(const Facts& facts);
Check checkSharedMemory(const Facts& facts);
Check checkLockedMemory(const Facts& facts);
Check checkFiles(const Facts& facts);
Check checkGpus(const Facts& facts);
Check checkQueues(const Facts& facts);

}  // namespace cgx::tool::doctor
