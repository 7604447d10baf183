// What is wrong with this build of the reference plugin: the same objects in every build, and one word (defect.cc) that
// differs.
#pragma once

namespace cgx::broken {

enum class Defect {
  None,
  // both halves
  LeaksThreads,
  LeaksFds,
  LeaksMappings,
  MissingFunction,
  BadProperties,
  WritesOutsideBuffer,
  WritesUserSendBuffer,
  WrongTestSize,
  NeverCompletes,
  BlockingCall,
  CloseBlocks,
  TouchesStagingAfterDereg,
  PeerLossUnnoticed,
  ErrorNotSticky,
  // net
  BlocksInConnect,
  ReordersReceives,
  CorruptsData,
  // collnet
  ConnectNotUnanimous,
  ConnectNeverCompletes,
  ReduceSupportDiffers,
  WrongSum,
  DegradesDataNextToPadding,
  RanksDifferInRounding,  // different bits on one rank
  RanksDifferInOneBit,
  NotReproducible,
  TooFewRequests,
  RankCrashed,
  // not a defect: lossy, and clears the padding as it should
  Quantises,
};

extern const Defect kDefect;
inline bool is(Defect defect) { return kDefect == defect; }

}  // namespace cgx::broken
