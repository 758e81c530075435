//! Policies that Cyclone has, as those of an end that was found.

use super::{Liveness, Policies};
use cyclors::*;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::time::Duration;

impl Policies {
    /// Those of an end that was found. A policy that it does not state has its default.
    ///
    /// # Safety
    /// `qos` is null, or points to policies that live and do not change meanwhile.
    pub(crate) unsafe fn read(qos: *const dds_qos_t) -> Self {
        let mut found = Policies::default();
        if qos.is_null() {
            return found;
        }
        let (mut kind, mut time, mut depth, mut number) = (0, 0, 0, 0);
        // SAFETY: the policies live (the caller's promise), and the values are places to be filled.
        unsafe {
            if dds_qget_reliability(qos, &mut kind, &mut time) {
                found.reliable = kind == dds_reliability_kind_DDS_RELIABILITY_RELIABLE;
                found.blocking = duration(time).unwrap_or_default();
            }
            if dds_qget_durability(qos, &mut kind) {
                found.transient_local = kind != dds_durability_kind_DDS_DURABILITY_VOLATILE;
            }
            if dds_qget_history(qos, &mut kind, &mut depth) && kind == dds_history_kind_DDS_HISTORY_KEEP_LAST {
                found.history = u32::try_from(depth).ok();
            }
            if dds_qget_deadline(qos, &mut time) {
                found.deadline = duration(time);
            }
            if dds_qget_lifespan(qos, &mut time) {
                found.lifespan = duration(time);
            }
            if dds_qget_latency_budget(qos, &mut time) {
                found.latency_budget = duration(time).filter(|budget| !budget.is_zero());
            }
            if dds_qget_liveliness(qos, &mut kind, &mut time) {
                found.liveness = liveness(kind);
                found.lease = duration(time);
            }
            if dds_qget_ownership(qos, &mut kind) {
                found.exclusive = kind == dds_ownership_kind_DDS_OWNERSHIP_EXCLUSIVE;
            }
            if dds_qget_ownership_strength(qos, &mut number) {
                found.strength = number;
            }
            if dds_qget_destination_order(qos, &mut kind) {
                found.by_source = kind == dds_destination_order_kind_DDS_DESTINATIONORDER_BY_SOURCE_TIMESTAMP;
            }
            found.user_data = user_data(qos);
            found.partitions = partitions(qos);
            found.representations = representations(qos);
        }
        found
    }
}

fn duration(nanoseconds: i64) -> Option<Duration> {
    (nanoseconds != i64::MAX).then(|| Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or_default()))
}

fn liveness(kind: dds_liveliness_kind_t) -> Liveness {
    match kind {
        kind if kind == dds_liveliness_kind_DDS_LIVELINESS_MANUAL_BY_TOPIC => Liveness::ByTopic,
        kind if kind == dds_liveliness_kind_DDS_LIVELINESS_MANUAL_BY_PARTICIPANT => Liveness::ByParticipant,
        _ => Liveness::Automatic,
    }
}

/// # Safety
/// As [`Policies::read`], and not null; so for the functions below.
pub(crate) unsafe fn user_data(qos: *const dds_qos_t) -> Vec<u8> {
    let (mut data, mut length): (*mut c_void, usize) = (null_mut(), 0);
    // SAFETY: Cyclone gives a copy of this length, which is ours to free.
    unsafe {
        if !dds_qget_userdata(qos, &mut data, &mut length) || data.is_null() {
            return Vec::new();
        }
        let bytes = std::slice::from_raw_parts(data.cast::<u8>(), length).to_vec();
        dds_free(data);
        bytes
    }
}

unsafe fn partitions(qos: *const dds_qos_t) -> Vec<String> {
    let (mut count, mut names): (u32, *mut *mut c_char) = (0, null_mut());
    // SAFETY: Cyclone gives copies of `count` names, which are ours to free.
    unsafe {
        if !dds_qget_partition(qos, &mut count, &mut names) || names.is_null() {
            return Vec::new();
        }
        let all = std::slice::from_raw_parts(names, count as usize);
        let texts = all.iter().map(|name| CStr::from_ptr(*name).to_string_lossy().into_owned()).collect();
        all.iter().for_each(|name| dds_free(name.cast()));
        dds_free(names.cast());
        texts
    }
}

unsafe fn representations(qos: *const dds_qos_t) -> Vec<i16> {
    let (mut count, mut numbers): (u32, *mut i16) = (0, null_mut());
    // SAFETY: Cyclone gives a copy of `count` numbers, which is ours to free.
    unsafe {
        if !dds_qget_data_representation(qos, &mut count, &mut numbers) || numbers.is_null() {
            return Vec::new();
        }
        let all = std::slice::from_raw_parts(numbers, count as usize).to_vec();
        dds_free(numbers.cast());
        all
    }
}

/// A text that a participant tells of itself (`__ProcessName`).
///
/// # Safety
/// As [`Policies::read`].
pub(crate) unsafe fn property(qos: *const dds_qos_t, name: &CStr) -> Option<String> {
    let mut value: *mut c_char = null_mut();
    // SAFETY: Cyclone gives a copy, which is ours to free.
    unsafe {
        if qos.is_null() || !dds_qget_prop(qos, name.as_ptr(), &mut value) || value.is_null() {
            return None;
        }
        let text = CStr::from_ptr(value).to_string_lossy().into_owned();
        dds_free(value.cast());
        Some(text)
    }
}
