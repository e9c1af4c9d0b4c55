// Declarations of Gloo that torch/csrc/distributed/c10d/ProcessGroupGloo.hpp needs. LibTorch contains
// Gloo, but does not ship its headers. The build generates the headers that ProcessGroupGloo.hpp
// includes, each of which includes this file.
//
// Only what is declared here may be used, and none of it constructed: the classes of LibTorch have
// further members. Functions have no definition, so that the symbols of LibTorch are never replaced.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace rendezvous {

class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};

}  // namespace rendezvous

namespace transport {

class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};

}  // namespace transport
}  // namespace gloo
