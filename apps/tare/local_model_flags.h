// Flags of every subcommand that runs a model on this machine.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/local_model.h"

namespace tare::app {

struct LocalModelFlags {
  std::string model;
  std::string dtype = "auto";
  int threads = 0;
  std::string isa;
  int max_model_len = 0;
  int max_num_seqs = 32;
  int max_num_batched_tokens = 512;
  int prefill_chunk = 128;
  std::string kv_memory;
  std::string kv_dtype = "bf16";
  std::string context_policy = "stop";
  std::string packed_cache;
  bool no_prefix_cache = false;
  std::string speculate = "auto";

  // MODEL and the flags above; serve's own flags (name, port, keys) stay its own.
  void AddTo(CLI::App& command);
  Result<engine::LocalModelOptions> ToOptions() const;
};

}  // namespace tare::app
