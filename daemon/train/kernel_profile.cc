#include "daemon/train/kernel_profile.h"

#include <memory>
#include <set>
#include <utility>

#include <c10/util/Exception.h>
#include <kineto/libkineto.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "shared/model/torch_status.h"

namespace stoker::train {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

std::set<ActivityType> activities_of(c10::Device device) {
  if (device.is_cuda()) return {ActivityType::CPU, ActivityType::CUDA};
  return {ActivityType::CPU};
}

}  // namespace

Status KernelProfile::start() {
  try {
    const torch::profiler::impl::ProfilerConfig config(
        torch::profiler::impl::ProfilerState::KINETO);
    const auto activities = activities_of(device_);
    // LibTorch has registered itself in the thread that loaded it. Kineto requires that of the first
    // profile, and would write an error to standard error.
    if (auto& kineto = libkineto::api(); !kineto.isProfilerRegistered())
      kineto.registerClient(kineto.client());
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities);
    running_ = true;
    return {};
  } catch (const c10::Error& error) {
    return model::to_status(error, "start LibTorch's profiler");
  }
}

void KernelProfile::mark(const char* name) {
  mark_.emplace(at::RecordScope::USER_SCOPE);
  if (mark_->isActive()) mark_->before(name);
}

Result<KernelProfile::Save> KernelProfile::stop() {
  mark_.reset();
  running_ = false;
  try {
    std::shared_ptr<profiler::ProfilerResult> result = profiler::disableProfiler();
    return Save([result](const std::string& path) -> Status {
      try {
        result->save(path);
        return {};
      } catch (const c10::Error& error) {
        return model::to_status(error, "save LibTorch's profile");
      }
    });
  } catch (const c10::Error& error) {
    return model::to_status(error, "end LibTorch's profiler");
  }
}

KernelProfile::~KernelProfile() {
  if (running_) (void)stop();  // the profile is discarded
}

}  // namespace stoker::train
