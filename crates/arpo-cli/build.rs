//! Tells the loader where the program finds libtorch: where the build did, or beside the program itself.

fn main() {
    let folder = std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys names the folder it linked against");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}:$ORIGIN/libtorch/lib");
    println!("cargo:rerun-if-changed=build.rs");
}
