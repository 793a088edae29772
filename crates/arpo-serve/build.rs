//! Tells the loader where the tests of this crate find libtorch: where the build did.

fn main() {
    let folder = std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys names the folder it linked against");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    println!("cargo:rerun-if-changed=build.rs");
}
